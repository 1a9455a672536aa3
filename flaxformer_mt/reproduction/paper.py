"""The paper's reported values ("Attention Is All You Need", arXiv 1706.03762, version 7)."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Literal, get_args

from flaxformer_mt.errors import UserError, nearest

Table = Literal["table2", "table3", "table4"]
TABLES: tuple[Table, ...] = get_args(Table)
TITLES: Mapping[Table, str] = {
    "table2": "Table 2: translation, newstest2014",
    "table3": "Table 3: variations of the base model, newstest2013, English to German",
    "table4": "Table 4: English constituency parsing, section 23 of the Wall Street Journal",
}

# "About 4.5 million sentence pairs", "36M sentences" (section 5.1), "about 40K training
# sentences", "approximately 17M sentences" (section 6.3).
EN_DE = {"wmt14": 4_500_000}
EN_FR = {"wmt14": 36_000_000}
WSJ = {"treebank": 40_000}
SEMI_SUPERVISED = {**WSJ, "highconf": 17_000_000}


class RowError(UserError):
    """A row that doesn't exist or doesn't apply to the given settings."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """One row of a table.

    `spec` is its config as `--config` takes it, a variation of `base`. `values` are the paper's:
    `bleu`, `perplexity` (of a word-piece), `f1` in percent, `millions` of parameters, training
    `flops`. The mean of the last `average` checkpoints (0: only the last) is scored on `test`:
    `valid` or one of `data.test`.
    """

    table: Table
    name: str
    spec: str
    base: str
    description: str
    values: Mapping[str, float]
    pairs: Mapping[str, int]
    average: int
    test: str
    remark: str = ""

    @property
    def label(self) -> str:
        return f"{self.table}/{self.name}"


def _table2(name: str, bleu: float, flops: float, remark: str = "") -> Row:
    languages, size = name.rsplit("_", 1)
    german = languages == "en_de"
    return Row(
        table="table2",
        name=name,
        spec=f"wmt14_{languages}:{size}",
        base=f"wmt14_{languages}:base",
        description=f"English to {'German' if german else 'French'}, {size}",
        values={"bleu": bleu, "flops": flops},
        pairs=EN_DE if german else EN_FR,
        average={"base": 5, "big": 20}[size],  # "the last 5 checkpoints", "the last 20" (6.1)
        test="newstest2014",
        remark=remark,
    )


def _table3(
    name: str, description: str, perplexity: float, bleu: float, millions: float = 0
) -> Row:
    values = {"perplexity": perplexity, "bleu": bleu}
    return Row(
        table="table3",
        name=name,
        spec=f"table3:{name}",
        base="table3:base",
        description=description,
        values=values | ({"millions": millions} if millions else {}),
        pairs=EN_DE,
        average=0,  # "beam search ..., but no checkpoint averaging"
        test="valid",
    )


def _table4(name: str, description: str, f1: float, pairs: Mapping[str, int]) -> Row:
    return Row(
        table="table4",
        name=name,
        spec=f"parsing:{name}",
        base=f"parsing:{name}",
        description=description,
        values={"f1": f1},
        pairs=pairs,
        average=5,
        test="test",
        remark="the paper doesn't mention averaging: as for the base model, like all it leaves out",
    )


ROWS: tuple[Row, ...] = (
    _table2("en_de_base", 27.3, 3.3e18),
    _table2("en_de_big", 28.4, 2.3e19),
    _table2("en_fr_base", 38.1, 3.3e18),
    _table2("en_fr_big", 41.8, 2.3e19, "the paper's text says 41.0"),
    _table3("base", "the base model", 4.92, 25.8, 65),
    _table3("a_h1", "(A) 1 head", 5.29, 24.9),
    _table3("a_h4", "(A) 4 heads", 5.00, 25.5),
    _table3("a_h16", "(A) 16 heads", 4.91, 25.8),
    _table3("a_h32", "(A) 32 heads", 5.01, 25.4),
    _table3("b_dk16", "(B) d_k 16", 5.16, 25.1, 58),
    _table3("b_dk32", "(B) d_k 32", 5.01, 25.4, 60),
    _table3("c_N2", "(C) 2 layers", 6.11, 23.7, 36),
    _table3("c_N4", "(C) 4 layers", 5.19, 25.3, 50),
    _table3("c_N8", "(C) 8 layers", 4.88, 25.5, 80),
    _table3("c_d256", "(C) d_model 256", 5.75, 24.5, 28),
    _table3("c_d1024", "(C) d_model 1024", 4.66, 26.0, 168),
    _table3("c_dff1024", "(C) d_ff 1024", 5.12, 25.4, 53),
    _table3("c_dff4096", "(C) d_ff 4096", 4.75, 26.2, 90),
    _table3("d_dropout0", "(D) dropout 0.0", 5.77, 24.6),
    _table3("d_dropout02", "(D) dropout 0.2", 4.95, 25.5),
    _table3("d_ls0", "(D) label smoothing 0.0", 4.67, 25.3),
    _table3("d_ls02", "(D) label smoothing 0.2", 5.47, 25.7),
    _table3("e_learned_positions", "(E) learned positions", 4.92, 25.7),
    _table3("big", "big", 4.33, 26.4, 213),
    _table4("wsj_only", "WSJ only", 91.3, WSJ),
    _table4("semi_supervised", "semi-supervised", 92.7, SEMI_SUPERVISED),
)


def rows_of(table: Table, only: Sequence[str] = ()) -> tuple[Row, ...]:
    """The rows of a table (`only` some) in its order. Raises RowError for unknown names."""
    rows = {row.name: row for row in ROWS if row.table == table}
    for name in only:
        if name not in rows:
            raise RowError(f"{table} has no row {name!r}; {nearest(name, rows)}")
    return tuple(row for row in rows.values() if not only or row.name in only)


def row_of(label: str) -> Row:
    """The row of a label such as `table3/c_N2`. Raises RowError."""
    for row in ROWS:
        if row.label == label:
            return row
    raise RowError(f"the paper has no row {label!r}")
