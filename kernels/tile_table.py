from .tiles import Table, Tile

A = {
    "bf16": Tile(256, 64, 32, 8, 3, 0),
    "fp16": Tile(256, 64, 32, 8, 3, 0),
    "fp32": Tile(64, 32, 16, 4, 3, 0),
    "tf32": Tile(128, 64, 32, 8, 3, 0),
}
B = {
    "bf16": Tile(128, 128, 64, 8, 3, 0),
    "fp16": Tile(128, 128, 64, 8, 3, 0),
    "fp32": Tile(64, 64, 16, 4, 3, 0),
    "tf32": Tile(128, 128, 32, 8, 3, 0),
}
GEGLU_TILES: Table = {"sm_80": A}
GROUPED_TILES: Table = {"sm_80": B}
