"""The kernel's own events about processes, which miss none that begins and ends between two scans."""
