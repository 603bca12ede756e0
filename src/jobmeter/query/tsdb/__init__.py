"""Arithmetic of OpenTSDB's queries over series, used by two dialects: OpenTSDB and foas' metricJson."""
