"""What is where: lanes, windows, movements and trees as pure functions, without style or text.

For others: `Side`, `View`, `Place` and `places` (view.py), the movements (moves.py), `make_sides`
(sides.py), `divided` (division.py), `Column` and `fit` (columns.py), `kind_of`, `label_of` and
`narrow` (kinds.py), `op_tree` (tree.py).
"""
