"""CloudMonitor's data points, for PAI-DLC (GetMetrics) and for CMS (DescribeMetricList).

Both calls name a namespace, a metric, dimensions, a period and a page, and return the points as JSON text.
"""
