"""API for programs and notebooks: ``jobmeter.Client`` reads jobs, ``jobmeter.log`` and its siblings report numbers."""
