"""The manifest as a table for people."""

from __future__ import annotations

from typing import Any


def describe(manifest: dict[str, Any]) -> str:
    """Pairs read, kept and dropped by each rule, with examples and their lines, and lengths."""
    lines = [f"{'corpus':<32}{'read':>12}{'kept':>12}{'dropped':>12}"]
    for account in manifest["corpora"]:
        dropped = sum(account["dropped"].values())
        lines.append(
            f"{account['key']:<32}{account['read']:>12,}{account['kept']:>12,}{dropped:>12,}"
        )
        for reason, count in account["dropped"].items():
            lines.append(f"  {reason:<54}{count:>12,}")
            for example in account["examples"]:
                if example["reason"] == reason:
                    lines.append(f"    {example['file']}:{example['line']}: {example['detail']}")
    lines.append("")
    lines.append(
        f"{'tokens':<14}{'total':>14}{'mean':>9}{'median':>9}{'p95':>9}{'p99':>9}{'max':>7}"
    )
    for split, sides in manifest["lengths"].items():
        for side, summary in sides.items():
            lines.append(
                f"{split + ' ' + side:<14}{summary['tokens']:>14,}{summary['mean']:>9.1f}"
                f"{summary['median']:>9.0f}{summary['p95']:>9.0f}{summary['p99']:>9.0f}"
                f"{summary['max']:>7}"
            )
    return "\n".join(lines)
