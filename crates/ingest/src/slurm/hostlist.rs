//! Slurm's host list expressions: `gpu[1-3,7],node01`, `rack[1-2]n[01-16]`.

/// Most nodes that one expression may name; the largest clusters have fewer.
pub(super) const MAX_NODES: usize = 65_536;

/// The nodes of an expression, in its order; `None` if it is none or names too many.
pub(super) fn expand(text: &str) -> Option<Vec<String>> {
    let mut nodes = Vec::new();
    for part in split_outside_brackets(text)? {
        let part = part.trim();
        if part.is_empty() {
            continue;
        }
        let mut names = vec![String::new()];
        let mut rest = part;
        while let Some((plain, after)) = rest.split_once('[') {
            let (ranges, after) = after.split_once(']')?;
            let numbers = numbers_of(ranges)?;
            if names.len().checked_mul(numbers.len())? > MAX_NODES {
                return None;
            }
            names = names.iter().flat_map(|name| numbers.iter().map(move |n| format!("{name}{plain}{n}"))).collect();
            rest = after;
        }
        if rest.contains(']') || rest.contains(char::is_whitespace) {
            return None;
        }
        names.iter_mut().for_each(|name| name.push_str(rest));
        nodes.extend(names);
        if nodes.len() > MAX_NODES {
            return None;
        }
    }
    Some(nodes)
}

/// Parts between commas that stand outside of brackets.
fn split_outside_brackets(text: &str) -> Option<Vec<&str>> {
    let mut parts = Vec::new();
    let mut is_inside = false;
    let mut start = 0;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'[' if is_inside => return None,
            b'[' => is_inside = true,
            b']' => is_inside = false,
            b',' if !is_inside => {
                parts.push(text.get(start..at)?);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text.get(start..)?);
    (!is_inside).then_some(parts)
}

/// `1-3,7,010-012` with the zeros that pad them.
fn numbers_of(ranges: &str) -> Option<Vec<String>> {
    let mut numbers = Vec::new();
    for range in ranges.split(',').map(str::trim) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        if first.is_empty() || !first.bytes().chain(last.bytes()).all(|b| b.is_ascii_digit()) {
            return None;
        }
        let (from, to): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
        if to < from || to - from >= MAX_NODES as u64 || numbers.len() > MAX_NODES {
            return None;
        }
        let width = first.len();
        numbers.extend((from..=to).map(|n| format!("{n:0width$}")));
    }
    Some(numbers)
}

/// Device indices: `0,2-3`; `N/A` and nonsense name none.
pub(super) fn indices_of(text: &str) -> Vec<u32> {
    /// Most devices of one node.
    const MAX_INDEX: u32 = 1024;
    let mut indices = Vec::new();
    for range in text.split(',').map(str::trim) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (Ok(from), Ok(to)) = (first.parse::<u32>(), last.parse::<u32>()) else { return Vec::new() };
        if to > MAX_INDEX || to < from {
            return Vec::new();
        }
        indices.extend(from..=to);
    }
    indices.sort_unstable();
    indices.dedup();
    indices
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_lists_expand_in_their_order() {
        let expand = |text: &str| expand(text).map(|nodes| nodes.join(" "));
        assert_eq!(expand("gpu[1-3,7],node01").unwrap(), "gpu1 gpu2 gpu3 gpu7 node01");
        assert_eq!(expand("n[008-011]").unwrap(), "n008 n009 n010 n011");
        assert_eq!(expand("r[1-2]n[1-2]-ib").unwrap(), "r1n1-ib r1n2-ib r2n1-ib r2n2-ib");
        assert_eq!(expand("gpu1").unwrap(), "gpu1");
        assert_eq!(expand("").unwrap(), "");
        for text in ["gpu[1-", "gpu1]", "gpu[3-1]", "gpu[a-b]", "gpu[1-99999999]", "a[1-60000]b[1-60000]", "gpu[[1]]", "None assigned"] {
            assert_eq!(expand(text), None, "{text}");
        }
    }

    #[test]
    fn indices_come_in_ranges_or_not_at_all() {
        assert_eq!(indices_of("0,2-3"), [0, 2, 3]);
        assert_eq!(indices_of("0-7"), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert!(indices_of("N/A").is_empty());
        assert!(indices_of("0-4294967295").is_empty());
        assert!(indices_of("").is_empty());
    }
}
