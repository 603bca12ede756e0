"""Where lines can be shipped to: one file a kind, named in ``jobmeter.ship.registry``."""
