"""PromQL: Prometheus' query language over the stored samples.

``parse`` makes ``nodes`` of a text. ``evaluate`` computes them over a grid of times, all series and all times of the
grid at once, with the modules beside it: ``windows`` and ``over_time`` for ranges, ``functions``, ``binary``,
``aggregate`` and ``histograms``. A ``Reader`` gives the samples of a selector.
"""
