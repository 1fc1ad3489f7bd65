"""Why a device was idle, and what its time went to."""
