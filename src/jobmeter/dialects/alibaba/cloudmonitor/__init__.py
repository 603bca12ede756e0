"""Data points as CloudMonitor gives them: asked for through PAI-DLC (GetMetrics) and through CMS (DescribeMetricList).

Both name a namespace, a metric, dimensions, a period and a page, and take the points as JSON text.
"""
