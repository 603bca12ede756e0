"""The one funnel in: validate, identify, keep, acknowledge."""
