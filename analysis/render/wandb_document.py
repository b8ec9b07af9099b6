"""The study's report as a W&B Report: the sections of the HTML, figures as custom charts.

W&B draws a figure from a table that a run logged (`wandb_report` logs one a figure) and a Vega-Lite
specification that its server keeps. The specification is the figure's own with fields spelt
``${field:name}``, which is how W&B binds them to the table's columns.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accerl.errors import UserError, one_line
from accerl.records import json_hash, make_out_dir, write_json
from analysis.figures.parts import study_colours
from analysis.figures.theme import Figure
from analysis.records.load import StudyRecord
from analysis.render.html import ROWS_SHOWN
from analysis.render.wandb_runs import (
    PROJECT,
    REPORT_ROLE,
    STEP,
    STRATEGY_ROLE,
    STUDY_STEP,
    runs_folder,
    strategy_run_id,
    table_key,
)
from analysis.report import blocks
from analysis.report.answer import study_lead
from analysis.report.study import StudyReport
from analysis.report.table import Table, figure_table

if TYPE_CHECKING:
    import wandb_workspaces.reports.v2.interface as wr

ENTITY = "entity"
"""stands for the account until `--wandb-save` names one"""
SPEC = "report.json"
TITLE_LENGTH = 128  # W&B refuses a longer title
PANEL = {"w": 24, "h": 14}
OWN_PLOTS = (
    "W&B's own plots of the same runs: means over test seeds, not interquartile means, of all "
    "strategies."
)


def write_report_spec(report: StudyReport, out_dir: Path) -> Path:
    """Write the report's specification, report.json, beside the offline runs; no network needed.

    Args:
        report: of the study.
        out_dir: where `write_offline_runs` has put the runs.

    Raises:
        UserError: `out_dir` cannot be written.
    """
    path = make_out_dir(runs_folder(Path(out_dir))) / SPEC
    write_json(path, _spec(_report(report, f"{ENTITY}/{PROJECT}")))
    return path


def save_report(report: StudyReport, out_dir: Path, target: str) -> tuple[str, list[str]]:
    """Save the report at W&B, whose runs must have been synced; return its address.

    Also returns a sentence for each reason why W&B refused charts: their tables stand in.

    Raises:
        UserError: nothing was written to `out_dir` yet, there is no key, or the server refuses.
    """
    import wandb

    entity, _ = split_target(target)
    if not (runs_folder(Path(out_dir)) / SPEC).is_file():
        raise UserError(
            f"{out_dir} holds no W&B report to save; write it with --wandb {out_dir} first, then "
            "`wandb sync` its runs"
        )
    try:
        api = wandb.Api()
    except Exception as error:  # its refusals are bare Exceptions; so they are below
        raise UserError(
            f"no usable W&B key ({one_line(error)}); set WANDB_API_KEY or run `wandb login`"
        ) from error
    refused: dict[str, str] = {}
    for figure in report.figures:
        try:
            api.create_custom_chart(
                entity=entity,
                name=chart_name(figure),
                display_name=figure.title,
                spec_type="vega2",
                access="private",
                spec=chart_spec(figure),
            )
        except Exception as error:
            refused[figure.name] = one_line(error)
    document = _report(report, target, without_chart=refused)
    try:
        document.save()
    except Exception as error:
        raise UserError(
            f"W&B did not save the report to {target}: {one_line(error)}; check the key and that "
            "the entity exists"
        ) from error
    write_json(runs_folder(Path(out_dir)) / SPEC, _spec(document))
    reasons = dict.fromkeys(refused.values())
    return document.url, [
        f"{', '.join(name for name in refused if refused[name] == why)}: {why}" for why in reasons
    ]


def split_target(target: str) -> tuple[str, str]:
    """Return entity and project of ENTITY/PROJECT.

    Raises:
        UserError: it is not of that form.
    """
    entity, slash, project = target.partition("/")
    if not (entity and slash and project) or "/" in project:
        raise UserError(f"--wandb-save {target!r}: give ENTITY/PROJECT, such as my-team/accerl")
    return entity, project


def chart_name(figure: Figure) -> str:
    """Return the name of a figure's chart; W&B never changes one, so a new spec gets a new name."""
    return f"accerl-{figure.name}-{json_hash(chart_spec(figure))[:8]}"


def chart_spec(figure: Figure) -> dict[str, Any]:
    """Return the figure's specification as W&B wants it: its table and fields bound by name."""
    spec = {key: value for key, value in figure.vega_lite().items() if key != "data"}
    columns = set(figure.columns)
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "data": {"name": "wandb"},
        **{key: _bind(value, columns) for key, value in spec.items()},
    }


def _bind(value: Any, columns: Collection[str]) -> Any:
    """Spell every field that is a column of the table as W&B binds it; inline data stays as is."""
    if isinstance(value, list | tuple):
        return [_bind(item, columns) for item in value]
    if not isinstance(value, Mapping):
        return value
    bound = {key: item if key == "data" else _bind(item, columns) for key, item in value.items()}
    name = bound.get("field")
    if isinstance(name, str) and name in columns:
        bound["field"] = f"${{field:{name}}}"
    return bound


def _report(report: StudyReport, target: str, without_chart: Collection[str] = ()) -> wr.Report:
    import wandb_workspaces.reports.v2.interface as wr

    entity, project = split_target(target)
    study, body = report.study, list[Any]()
    for part in report.sections:
        body += [wr.H2(text=part.title), wr.P(text=part.lead)]
        for block in part.blocks:
            body += _blocks(block, study, entity, without_chart)
        if part.id == "curves":
            body += _line_plots(study)
    return wr.Report(
        project=project,
        entity=entity,
        title=f"AcceRL study {study.name}"[:TITLE_LENGTH],
        description=study_lead(study),
        blocks=[wr.TableOfContents(), *body],
        width="fluid",
    )


def _blocks(
    block: blocks.Block, study: StudyRecord, entity: str, without_chart: Collection[str]
) -> list[Any]:
    import wandb_workspaces.reports.v2.interface as wr

    if isinstance(block, blocks.Text):
        bold = block.style == "headline"
        return [wr.MarkdownBlock(text=f"**{block.text}**") if bold else wr.P(text=block.text)]
    if isinstance(block, blocks.Heading):
        return [wr.H3(text=block.text)]
    if isinstance(block, blocks.Listing):
        return [wr.UnorderedList(items=list(block.items))]
    if isinstance(block, blocks.Definitions):
        marks = {term: f" ({block.mark})" for term in block.marked}
        terms = (f"**{term}**{marks.get(term, '')}: {text}" for term, text in block.terms.items())
        return [wr.MarkdownBlock(text="\n\n".join(terms))]
    if isinstance(block, blocks.Code):
        return [wr.CodeBlock(code="\n".join(block.lines), language=None)]
    if isinstance(block, blocks.Folded):
        inner = [
            item for part in block.blocks for item in _blocks(part, study, entity, without_chart)
        ]
        return [wr.H3(text=block.title, collapsed_blocks=inner)]
    if isinstance(block, Table):
        return [_markdown(block)]
    caption = wr.MarkdownBlock(text=f"**{block.title}.** {block.caption}")
    if block.name in without_chart:
        return [caption, _markdown(figure_table(block, ROWS_SHOWN))]
    chart = wr.CustomChart(
        query={"summaryTable": {"tableKey": table_key(block)}},
        chart_name=f"{entity}/{chart_name(block)}",
        chart_fields={name: name for name in block.columns},
        layout=wr.Layout(**PANEL),
    )
    return [caption, wr.PanelGrid(runsets=[_runset(study, REPORT_ROLE)], panels=[chart])]


def _line_plots(study: StudyRecord) -> list[Any]:
    """The learning curves once more, as W&B's own plots over the strategies' runs."""
    import wandb_workspaces.reports.v2.interface as wr

    key = "charts/learner_return"
    together = wr.LinePlot(title="All instances (normalised)", x=STUDY_STEP, y=[key])
    by_game = [
        wr.LinePlot(title=game, x=f"{STEP}/{game}", y=[f"{key}/{game}"]) for game in study.games
    ]
    plots = wr.PanelGrid(
        runsets=[_runset(study, STRATEGY_ROLE)],
        panels=[together, *by_game],
        custom_run_colors={
            strategy_run_id(study, name): colour for name, colour in study_colours(study).items()
        },
    )
    return [wr.P(text=OWN_PLOTS), plots]


def _runset(study: StudyRecord, role: str) -> wr.Runset:
    import wandb_workspaces.reports.v2.interface as wr
    from wandb_workspaces import expr

    # Without an entity of its own a run set is the report's project, and needs no network here.
    mine = expr.And(
        expr.Config("study") == study.name,
        # Every contest has the same name: only the plan tells them apart in one project.
        expr.Config("plan_hash") == study.info["plan_hash"],
        expr.Config("role") == role,
    )
    return wr.Runset(entity="", project="", name=f"{study.name}: {role}", filters=mine)


def _markdown(table: Table) -> wr.MarkdownBlock:
    import wandb_workspaces.reports.v2.interface as wr

    def line(cells: Sequence[str]) -> str:
        kept = (cell.replace("|", "\\|").replace("\n", " ") for cell in cells)
        return f"| {' | '.join(kept)} |"

    rules = ["---:" if numeric else "---" for _, numeric in table.headings]
    lines = [line([name for name, _ in table.headings]), line(rules)]
    lines += [line([cell.text for cell in row]) for row in table.rows]
    return wr.MarkdownBlock(text="\n".join([f"**{table.title}**", "", *lines]))


def _spec(report: wr.Report) -> dict[str, Any]:
    model = report._to_model()  # the client offers no public way to a report's specification
    return json.loads(model.spec.model_dump_json(by_alias=True, exclude_none=True))
