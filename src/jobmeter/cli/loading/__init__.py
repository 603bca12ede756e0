"""What ``jobmeter import`` is made of: readers of files, frames from columns, a sender. Needs the ``server`` extra."""
