//! Prometheus text exposition and OpenMetrics, mapped to canonical telemetry by a table of names.
