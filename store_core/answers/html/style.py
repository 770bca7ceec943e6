# SPDX-License-Identifier: Apache-2.0
"""The style of reports: light and dark as the reader's system is, or as the notebook is that shows them."""

from __future__ import annotations

from typing import Final

__all__ = ["ROOT_CLASS", "STYLE"]

ROOT_CLASS: Final = "commitlog-report"
"""Class of the element around a report: the style applies to nothing else on the page."""

_LIGHT: Final = (
    "--paper:#ffffff;--ink:#1f2733;--soft:#5a6675;--line:#dfe3e8;--plain:#8793a3;--track:#f0f2f5;--good:#0b7a55;"
    "--bad:#c2410c;--warning:#b57b00;color-scheme:light"
)
_DARK: Final = (
    "--paper:#14181e;--ink:#e8ecf2;--soft:#a3b0c2;--line:#2f3947;--plain:#77849a;--track:#212833;--good:#4cc38a;"
    "--bad:#ff8a5b;--warning:#e3b341;color-scheme:dark"
)
_RULES: Final = """
& {background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,"Segoe UI","Helvetica Neue",Arial,sans-serif;
 max-width:62rem;margin:0 auto;padding:1.5rem clamp(1rem,4vw,2.5rem) 2.5rem;box-sizing:border-box;
 font-variant-numeric:tabular-nums}
& header {border-bottom:1px solid var(--line);padding-bottom:1rem;margin-bottom:1.25rem}
& .kind {color:var(--soft);margin:0}
& h1 {font-size:1.45rem;line-height:1.3;font-weight:600;margin:.15rem 0 .7rem;overflow-wrap:anywhere}
& .verdict {display:inline-block;border:1.5px solid currentColor;border-radius:1rem;padding:.05rem .75rem;
 font-weight:600}
& .verdict.good {color:var(--good)}
& .verdict.bad {color:var(--bad)}
& .verdict.warning {color:var(--warning)}
& .words {list-style:none;margin:0 0 1.75rem;padding:0}
& .words li {margin:.2rem 0;overflow-wrap:anywhere}
& figure {margin:0 0 1.9rem}
& figcaption,& summary {font-size:1.05rem;font-weight:600;margin:0 0 .5rem}
& summary {cursor:pointer}
& summary small {color:var(--soft);font-weight:400}
& .row {display:grid;grid-template-columns:minmax(7rem,14rem) 1fr minmax(4rem,15rem);gap:0 .9rem;align-items:center;
 margin:.25rem 0}
& .row .name {overflow-wrap:anywhere}
& .row .label {color:var(--soft);overflow-wrap:anywhere}
& .row svg {display:block;width:100%;height:.95rem;background:var(--track);border-radius:2px;min-width:0}
& .row .ends {grid-column:2;display:flex;justify-content:space-between;color:var(--soft);font-size:.85rem}
& path.good {fill:var(--good)}
& path.bad {fill:var(--bad)}
& path.warning {fill:var(--warning)}
& path.plain {fill:var(--plain)}
& path.full {fill:var(--line)}
& .more {color:var(--soft);margin:.4rem 0 0}
& details {margin:0 0 1.4rem}
& .scroll {overflow-x:auto}
& table {border-collapse:collapse;font-size:.9rem;color:inherit;margin:0}
& th,& td {text-align:left;vertical-align:top;padding:.28rem 1.1rem .28rem 0;border-bottom:1px solid var(--line);
 background:none;overflow-wrap:anywhere;max-width:26rem}
& th {font-weight:400;color:var(--soft);white-space:nowrap;overflow-wrap:normal}
& td.number,& th.number {text-align:right;white-space:nowrap}
& td.short {white-space:nowrap}
& td.text {min-width:11rem}
& td.long {min-width:14rem}
& footer {color:var(--soft);font-size:.85rem;margin-top:2rem}
@media (max-width:40rem) {& .row {grid-template-columns:1fr auto;margin:.5rem 0}
& .row svg {grid-row:2;grid-column:1/-1}
& .row .label {text-align:right}
& .row .ends {grid-column:1/-1}}
@media print {& {padding:0;max-width:none}}
"""

STYLE: Final = "\n".join(
    (
        f".{ROOT_CLASS} {{{_LIGHT}}}",
        f"@media (prefers-color-scheme:dark) {{.{ROOT_CLASS} {{{_DARK}}}}}",
        f'[data-jp-theme-light="true"] .{ROOT_CLASS} {{{_LIGHT}}}',
        f'[data-jp-theme-light="false"] .{ROOT_CLASS} {{{_DARK}}}',
        _RULES.strip().replace("&", f".{ROOT_CLASS}"),
    )
)
"""CSS without anything from a store; ``data-jp-theme-light`` is JupyterLab's."""
