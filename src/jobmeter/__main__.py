"""``python -m jobmeter`` is the ``jobmeter`` command."""

from jobmeter.cli.main import main

if __name__ == "__main__":
    main()
