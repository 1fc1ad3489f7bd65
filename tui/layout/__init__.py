"""What is where: lanes, windows, movements and trees as pure functions, without style or text.

For others: `Side`, `View`, `Place` and `make_sides` (view.py), the movements (moves.py), `places`
(places.py), `divided` (frame.py), `ListColumn` and `fit` (text_layout.py), `kind_of`, `label_of`
and `narrow` (kinds.py), `call_tree` and `op_tree` (op_tree.py).
"""
