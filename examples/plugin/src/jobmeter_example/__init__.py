"""An example of plug-ins for Jobmeter: a rule, a collector, a vendor of accelerators and a dialect."""
