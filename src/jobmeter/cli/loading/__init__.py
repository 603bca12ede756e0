"""Parts of ``jobmeter import``: file readers, frames from columns, a sender. Needs the ``server`` extra."""
