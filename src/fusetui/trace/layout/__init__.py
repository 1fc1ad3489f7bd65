"""From slices in file order to rows on tracks, with nesting, links to launches, steps
and devices."""
