"""Why a device was idle, and where its time went: figures that add up, and findings
with evidence."""
