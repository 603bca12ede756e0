"""An example of plug-ins for Jobmeter: a rule, a collector and a dialect."""
