"""Scripts that make recorded calls again: templates, and what is filled into them."""
