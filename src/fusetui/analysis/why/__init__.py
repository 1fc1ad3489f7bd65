"""Why a device was idle, and what its time went to: figures that add up, and claims
with their evidence."""
