"""What each page shows, one file per page: functions of the state. registry.py lists
the pages."""
