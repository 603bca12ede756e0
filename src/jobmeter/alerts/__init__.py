"""Alerts: rule files, the states of alerts, and the messages about them.

``rules`` reads Prometheus' rule files, ``config`` the settings in Alertmanager's form. ``states`` computes the next
states from the values of an expression. ``muting`` applies silences and inhibitions, ``notify`` decides who gets which
message, ``deliver`` sends it.
"""
