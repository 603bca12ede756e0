"""The arithmetic of OpenTSDB's queries over series, which two dialects speak: OpenTSDB's own, and foas' metricJson."""
