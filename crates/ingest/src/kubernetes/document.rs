//! Objects of a `kubectl get -o json` text, one by one: lists, single objects, several documents, JSON lines,
//! watch events. Only one object is in memory at a time, however long its list is.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::refusals::{Refusals, excerpt, foreign_encoding, without_mark};

/// Calls `each` with the kind and the body of every object; unreadable documents go to `refusals`.
pub(super) fn for_each_object(bytes: &[u8], refusals: &mut Refusals, mut each: impl FnMut(&str, &Value, u64, &mut Refusals)) -> u64 {
    if let Some(reason) = foreign_encoding(bytes) {
        refusals.reject(0, "", reason);
        return 0;
    }
    let bytes = without_mark(bytes);
    let mut rows = 0;
    let mut offset = skip_blanks(bytes, 0);
    let mut lines = LineCounter::default();
    while offset < bytes.len() {
        let line = lines.line_at(bytes, offset);
        let rest = bytes.get(offset..).unwrap_or_default();
        let mut deserializer = serde_json::Deserializer::from_slice(rest);
        let mut take = |kind: &str, value: &Value| {
            rows += 1;
            each(kind, value, line, refusals);
        };
        let outcome = deserializer.deserialize_any(Document { each: &mut take });
        offset = match outcome {
            Ok(()) => offset + deserializer.into_iter::<IgnoredAny>().byte_offset(),
            Err(error) => {
                rows += 1;
                let at = line + (error.line() as u64).saturating_sub(1);
                let reason = format!(
                    "no readable JSON object ({}); objects before it are kept, send the file again whole",
                    excerpt(&error.to_string())
                );
                refusals.reject(at, "", reason);
                next_document(bytes, offset)
            }
        };
        offset = skip_blanks(bytes, offset);
    }
    rows
}

/// Counts lines as offsets go forward, each byte once.
#[derive(Default)]
struct LineCounter {
    offset: usize,
    newlines: u64,
}

impl LineCounter {
    fn line_at(&mut self, bytes: &[u8], offset: usize) -> u64 {
        let between = bytes.get(self.offset..offset).unwrap_or_default();
        self.newlines += memchr::memchr_iter(b'\n', between).count() as u64;
        self.offset = offset;
        self.newlines + 1
    }
}

fn skip_blanks(bytes: &[u8], mut offset: usize) -> usize {
    // A comma or a record separator between documents is a blank too (RFC 7464, hand-joined files).
    while bytes.get(offset).is_some_and(|b| b.is_ascii_whitespace() || matches!(b, b',' | 0x1e | 0)) {
        offset += 1;
    }
    offset
}

/// The next line that begins with `{` or `[`: documents start in column one, what is inside them does not.
fn next_document(bytes: &[u8], offset: usize) -> usize {
    let mut at = offset;
    while let Some(step) = bytes.get(at..).and_then(|rest| memchr::memchr(b'\n', rest)) {
        at += step + 1;
        if bytes.get(at).is_some_and(|b| matches!(b, b'{' | b'[')) {
            return at;
        }
    }
    bytes.len()
}

/// A document: an object, or a list whose items are handed on as they are read.
struct Document<'a, F> {
    each: &'a mut F,
}

impl<'de, F: FnMut(&str, &Value)> Visitor<'de> for Document<'_, F> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("a Kubernetes object or list")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut fields = Map::new();
        let mut is_list = false;
        while let Some(key) = map.next_key::<String>()? {
            if key == "items" {
                is_list = true;
                let list_kind = fields.get("kind").and_then(Value::as_str).and_then(|k| k.strip_suffix("List"));
                let kind = list_kind.unwrap_or_default().to_string();
                map.next_value_seed(Items { each: &mut *self.each, kind: &kind })?;
            } else {
                let value = map.next_value::<Value>()?;
                fields.insert(key, value);
            }
        }
        if !is_list {
            hand_on(self.each, "", Value::Object(fields));
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while let Some(item) = items.next_element::<Value>()? {
            hand_on(self.each, "", item);
        }
        Ok(())
    }
}

/// The `items` of a list; `null` is an empty list.
struct Items<'a, F> {
    each: &'a mut F,
    kind: &'a str,
}

impl<'de, F: FnMut(&str, &Value)> DeserializeSeed<'de> for Items<'_, F> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, F: FnMut(&str, &Value)> Visitor<'de> for Items<'_, F> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("a list of Kubernetes objects")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while let Some(item) = items.next_element::<Value>()? {
            hand_on(self.each, self.kind, item);
        }
        Ok(())
    }
}

/// One object: nested lists and watch events are opened, a missing kind is found from the body.
fn hand_on<F: FnMut(&str, &Value)>(each: &mut F, list_kind: &str, mut value: Value) {
    let is_event = value.get("object").is_some_and(Value::is_object) && value.get("type").is_some_and(Value::is_string);
    if is_event && let Some(object) = value.get_mut("object") {
        value = object.take();
    }
    if let Some(Value::Array(items)) = value.get_mut("items").map(Value::take) {
        for item in items {
            hand_on(each, "", item);
        }
        return;
    }
    let kind = match value.get("kind").and_then(Value::as_str) {
        Some(kind) => kind.to_string(),
        None if !list_kind.is_empty() => list_kind.to_string(),
        None => kind_by_body(&value).to_string(),
    };
    each(&kind, &value);
}

/// Items of a raw API list carry no kind of their own.
fn kind_by_body(value: &Value) -> &'static str {
    if value.pointer("/spec/containers").is_some() {
        "Pod"
    } else if value.pointer("/status/nodeInfo").is_some() || value.pointer("/status/allocatable").is_some() {
        "Node"
    } else {
        ""
    }
}
