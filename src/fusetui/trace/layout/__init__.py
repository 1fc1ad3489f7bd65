"""From slices in file order to rows on tracks: nesting, links to launches, steps,
devices."""
