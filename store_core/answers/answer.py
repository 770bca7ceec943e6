# SPDX-License-Identifier: Apache-2.0
"""An answer: a question about a store as a frozen dataclass, whose fields, with their words, make all its faces.

A subclass has a field for each option, made by `opt`, and the method `on`, which makes the report on any engine. From
these come the call in Python (`Answer.ask`, and a function by `function_of`), the command with its ``--help``
(`store_core.command.answer_command`), the call in a Spark session and the job (`pyspark_commitlog.answers`), and the
options in ``docs/options.md``.
"""

from __future__ import annotations

import inspect
import os
import re
import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Self, TypedDict, TypeVar, Unpack, cast

import pyarrow as pa

from store_core.answers.report import OfStore, Report, ReportSchema, ReportTable, Verdict, fact
from store_core.errors import InvalidOptionError, StoreError
from store_core.format.columns import STORE
from store_core.format.release import DEFAULT_RELEASE, RELEASES, release_hint
from store_core.format.words import agreeing, counted, hint_of
from store_core.store.parts import Engine, InProcess, LocalEngine, ProgressSink

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import tzinfo

    from store_core.files.store_path import StorePaths
    from store_core.snapshot.store import Store


TIME_WORDS: Final = "ms since 1970, ISO 8601, or a time before the log's last message, such as -15m"
"""What a time may be."""

AnyReport = TypeVar("AnyReport", bound="Report[Any]")
AnyAnswer = TypeVar("AnyAnswer", bound="Answer[Any]")


class Kind(Enum):
    """What the value of an option is; text without any other sign."""

    TEXT = "text"
    HIDDEN = "hidden"
    """Text that no report shows, such as what must not be in a copy."""
    NUMBER = "number"
    FLAG = "flag"
    TIME = "time"
    """ms since 1970 in the field; `store_core.store.read.option_values` says what a caller may give."""
    PATH = "path"
    """A file or directory to write, or a file to read."""
    STORE = "store"
    """Another store, beside the one that is asked about."""
    FROM_CONFIG = "from_config"
    """The path of the broker's configuration, which every answer can be given: it is no option of its own."""
    READ = "read"
    """Options of the reader by name, which say which messages are meant: each is an option of its own."""


@dataclass(frozen=True, slots=True)
class AnswerOption:
    """An option of an answer, as its field says.

    * `least`, `most`: Bounds of a number, inclusive.
    """

    name: str  # of the field
    kind: Kind
    words: str  # its meaning, a sentence for ``--help``
    default: Any  # `dataclasses.MISSING` if it has to be given
    flag: str  # on a command line; empty for what is given without, in order
    metavar: str | None = None  # what stands for its value in ``--help``
    shown_default: str = ""  # the default in words; empty if there is none to be told
    least: int | None = None
    most: int | None = None
    choices: tuple[str, ...] = ()  # what it may be; empty if it is not one of some words
    hint: Callable[[str], str] | None = None
    """What else is said of a word that is none of them, in place of the nearest."""
    enum: type[Enum] | None = None  # whose member the field gets, where the choices are its values
    is_repeated: bool = False  # whether it can be given more than once

    def parsed(self, value: Any, zone: tzinfo | None = None) -> Any:  # noqa: ANN401 -- whatever a caller gives
        """Return the value that the field gets; times without a zone are in the one that is given."""
        if value is None:
            return None
        if self.is_repeated:
            values = (value,) if isinstance(value, str) else tuple(value)
            for each in values:
                self._check_choice(each)
            return values
        if self.kind is Kind.TIME:
            return value if _is_relative(value) else _parsed_time(self.name, value, zone)
        if self.kind is Kind.NUMBER:
            self._check_bounds(value)
        if self.kind is Kind.PATH and value == "":  # it would stand for the working directory
            raise InvalidOptionError(f"{self.name}: expected a path, found ''")
        self._check_choice(value)
        return value if self.enum is None else self.enum(value)

    def words_for(self, value: Any) -> list[str]:  # noqa: ANN401 -- as `parsed`
        """Return what is typed for a value; nothing for the default, and for what a command line has no word for."""
        if self.kind is Kind.READ:
            return [word for name, each in value.items() for word in (f"--{name.replace('_', '-')}", str(each))]
        if self.kind is Kind.FLAG:
            said, _, denied = self.flag.partition("/")
            is_typed = value and (not denied or not self.default)
            return [said] * bool(is_typed) + [denied] * bool(denied and not value)
        if value == self.default or is_dataclass(value):
            return []
        words: list[str] = []
        for each in value if self.is_repeated else [getattr(value, "value", value)]:
            words += [self.flag] * bool(self.flag) + ["..." if self.kind is Kind.HIDDEN else str(each)]
        return words

    def _check_choice(self, value: Any) -> None:  # noqa: ANN401 -- as `parsed`
        if self.choices and getattr(value, "value", value) not in self.choices:
            expected = ", ".join(self.choices)
            hint = hint_of(str(value), self.choices) if self.hint is None else self.hint(str(value))
            raise InvalidOptionError(f"{self.name}: expected one of {expected}, found {value!r}{hint}")

    def _check_bounds(self, value: int) -> None:
        if self.most is not None:
            if not (self.least or 0) <= value <= self.most:
                raise InvalidOptionError(f"{self.name}: expected {self.least} to {self.most}, found {value}")
        elif self.least is not None:
            from store_core.store.parts import check_least

            check_least(self.least, **{self.name: value})


def _is_relative(value: object) -> bool:
    """Return whether a time is one before the store time of the log's last message, which `Answer.ask` looks up."""
    if not isinstance(value, str) or not value.strip().startswith("-"):
        return False
    from store_core.store.read.read_options import is_relative

    return is_relative(value)


def _parsed_time(name: str, value: object, zone: tzinfo | None) -> int:
    from store_core.store.read.option_values import check_calendar_time, store_time

    time = value if isinstance(value, int) else store_time(name, value, zone)
    check_calendar_time(name, time)
    return time


class Said(TypedDict, total=False):
    """What else an option may say of itself, as `AnswerOption` explains it."""

    kind: Kind
    metavar: str
    flag: str | None
    shown_default: str
    least: int
    most: int
    hint: Callable[[str], str]


def opt(
    default: Any,  # noqa: ANN401 -- whatever the field has
    words: str,
    *,
    choices: Collection[str] | type[Enum] = (),
    **said: Unpack[Said],
) -> Any:  # noqa: ANN401 -- the default, for a type checker
    """Return the field of an option; `dataclasses.MISSING` is no default.

    The annotation of the field says the rest: ``int`` is a number, ``bool`` a flag, ``tuple[str, ...]`` is repeated.
    """
    values = tuple(str(getattr(each, "value", each)) for each in choices)
    enum = choices if isinstance(choices, type) else None
    return field(default=default, metadata={"option": {"words": words, "choices": values, "enum": enum, **said}})


def flag(words: str, name: str | None = None) -> Any:  # noqa: ANN401 -- as `opt`
    """Return the field of a flag, which is off by default."""
    return opt(False, words, flag=name)  # noqa: FBT003 -- the default


def release_option() -> Any:  # noqa: ANN401 -- as `opt`
    """Return the field that says by whose rules a store is read."""
    return opt(DEFAULT_RELEASE, "RocketMQ that serves the store.", choices=RELEASES, hint=release_hint)


def options_of(answer: type[Answer[Any]]) -> tuple[AnswerOption, ...]:
    """Return the options of an answer, in the order of its fields."""
    return tuple(_option(each) for each in fields(answer) if "option" in each.metadata)


def _option(each: Any) -> AnswerOption:  # noqa: ANN401 -- a `dataclasses.Field`, whose type has a parameter
    said = dict(each.metadata["option"])
    annotated = str(each.type)
    kinds = {"bool": Kind.FLAG, "int": Kind.NUMBER, "int | None": Kind.NUMBER}
    said.setdefault("kind", kinds.get(annotated, Kind.PATH if "PathLike" in annotated else Kind.TEXT))
    if said.get("flag") is None:
        said["flag"] = f"--{each.name.replace('_', '-')}"
    is_told = each.default not in (MISSING, None, False, ())
    said.setdefault("shown_default", str(getattr(each.default, "value", each.default)) if is_told else "")
    return AnswerOption(each.name, default=each.default, is_repeated=annotated.startswith("tuple["), **said)


@dataclass(frozen=True)
class Answer(ABC, Generic[AnyReport]):
    """What is asked of a store.

    The first paragraph of a subclass's docstring is the beginning of its ``--help``, whose next ones follow it.

    Attributes
    ----------
    NAME : str
        Of its command.
    EXAMPLES : tuple of str
        Command lines for ``--help``.
    CONFIG_WORDS : str
        What in the broker's configuration counts, beside the place of the log; empty if nothing does.
    STORE : str
        What stands for the store in ``--help``.
    IS_LOCAL : bool
        Whether the store has to be on this machine, rather than in another storage.
    HAS_PARTS : bool
        Whether there is work for processes or Spark.
    HAS_SPARK : bool
        Whether Spark can do it, where it has no parts.
    SHOWS_WARNINGS : bool
        Whether its command shows what the core warns of, since the report does not have it.
    JSON_FILE : (str, str) or None
        Name and words of the option of its command that writes the report to a new file as well, as JSON.
    TAKES_SEVERAL : bool
        Whether it can be asked about several stores.
    IS_SUMMED : bool
        Whether it then has one report over all, rather than one for each.
    MISSES : tuple of exception types
        What says that one of them only has nothing of what was asked for.
    """

    NAME: ClassVar[str]
    EXAMPLES: ClassVar[tuple[str, ...]]
    CONFIG_WORDS: ClassVar[str] = ""
    STORE: ClassVar[str] = "STORE"
    IS_LOCAL: ClassVar[bool] = False
    HAS_PARTS: ClassVar[bool] = True
    HAS_SPARK: ClassVar[bool] = False
    SHOWS_WARNINGS: ClassVar[bool] = False
    JSON_FILE: ClassVar[tuple[str, str] | None] = None
    TAKES_SEVERAL: ClassVar[bool] = True
    IS_SUMMED: ClassVar[bool] = False
    MISSES: ClassVar[tuple[type[Exception], ...]] = (InvalidOptionError,)

    def __post_init__(self) -> None:
        """Check the options, and replace those that are given in another form."""
        zone: tzinfo | None = None
        if (given := getattr(self, "time_zone", None)) is not None:  # that of times without one
            from store_core.store.read.option_values import parse_zone

            zone = parse_zone("time_zone", given)
        for option in options_of(type(self)):
            object.__setattr__(self, option.name, option.parsed(getattr(self, option.name), zone))

    @classmethod
    def of(cls, *given: Any, **options: Any) -> Self:  # noqa: ANN401 -- the options
        """Make an answer; where options of the reader say which messages are meant, they are taken by their names."""
        read = next((each.name for each in options_of(cls) if each.kind is Kind.READ), None)
        if read is not None:
            own = {each.name for each in fields(cls)}
            of_reader = {name: options.pop(name) for name in [*options] if name not in own}
            options[read] = {**options.get(read, {}), **of_reader}
        return cls(*given, **options)

    @abstractmethod
    def on(self, engine: Engine, store: Store) -> AnyReport:
        """Make the report on an engine: all that is read of the store is as of its moment."""

    def for_store(self, name: str) -> Self:  # noqa: ARG002 -- most ask all stores alike
        """Return what is asked of one of several stores."""
        return self

    def again(self, found: Sequence[AnyReport]) -> Self | None:  # noqa: ARG002 -- as above
        """Return a second question for the stores without an answer, by what the others found; None without one."""
        return None

    def is_mistaken(self, store: StorePaths, report: AnyReport) -> bool:  # noqa: ARG002 -- most have nothing to tell
        """Return whether nothing was found because the store has nothing of what was asked for by name."""
        return False

    def ask(
        self,
        store: StorePaths | Sequence[Store],
        *,
        config: str | os.PathLike[str] | None = None,
        engine: Engine | None = None,
    ) -> AnyReport:
        """Return the report about a store; nothing is written to it, and no lock is taken, unless the answer says so.

        Parameters
        ----------
        store : path or sequence of paths, or of Store
            As of `store_core.read_messages`. Of several stores there is one report over all, or one for each: the page
            on reports says which.
        config : path, optional
            The broker's configuration, as of option `config` of `store_core.read_messages`.
        engine : Engine, optional
            What does the work: by default this process, or `processes`, or `pyspark_commitlog.answers.SparkEngine`. The
            result is the same.

        Raises
        ------
        StoreError
            If there is nothing to read, or an option is invalid.
        """
        from store_core.answers.report import Origin
        from store_core.files.store_path import given_paths
        from store_core.snapshot.store import Store, stores_of

        are_stores = isinstance(store, Sequence) and bool(store) and all(isinstance(each, Store) for each in store)
        stores = stores_of(store, config=config)
        paths = stores[0].paths if len(stores) == 1 else [each for one in stores for each in given_paths(one.paths)]
        asked = _at_times_of(self.told(config), stores)
        if isinstance(engine, AbstractContextManager):  # it ends what it has started
            with engine as running:
                report = _answered(asked, stores, running)
        else:
            report = _answered(asked, stores, engine or InProcess())
        if not hasattr(self, "NAME"):  # a part of a command
            return report
        given = paths if are_stores else cast("StorePaths", store)
        return replace(report, origin=Origin(self.command_line(given, config), paths))

    def command_line(self, store: StorePaths, config: str | os.PathLike[str] | None = None) -> str:
        """Return the command that asks the same."""
        words = ["commitlog", self.NAME, *map(str, [store] if isinstance(store, str | os.PathLike) else store)]
        for option in options_of(type(self)):
            if option.kind is not Kind.FROM_CONFIG:
                words += option.words_for(getattr(self, option.name))
        return shlex.join([*words, *(["--config", os.fspath(config)] if isinstance(config, str | os.PathLike) else [])])

    def told(self, config: str | os.PathLike[str] | None) -> Self:
        """Return the answer with the broker's configuration, as far as that is given and counts."""
        from store_core.snapshot.store import Store

        changed: dict[str, Any] = {}
        for option in options_of(type(self)):
            if option.kind is Kind.FROM_CONFIG:
                changed[option.name] = config
            elif option.kind is Kind.STORE:
                changed[option.name] = Store(getattr(self, option.name), config=config).paths
        return replace(self, **changed) if config is not None and changed else self


def _answered(asked: Answer[AnyReport], stores: Sequence[Store], engine: Engine) -> AnyReport:
    if len(stores) == 1:
        return asked.on(engine, stores[0])
    if not asked.TAKES_SEVERAL:
        names = ", ".join(str(each.paths) for each in stores)
        raise InvalidOptionError(
            f"store: expected one store, found {len(stores)}: {names}. Ask about each store by itself"
        )
    from store_core.answers.answer import StoreReports, summed

    found = [_of_store(asked.for_store(store.name), store, engine) for store in stores]
    again = asked.again([cast("AnyReport", each.report) for each in found if each.report is not None])
    if again is not None:
        pairs = zip(found, stores, strict=True)
        found = [_of_store(again, store, engine) if each.report is None else each for each, store in pairs]
    errors = [each.error for each in found if each.error is not None]
    if len(errors) == len(found):
        raise errors[0]
    return cast("AnyReport", summed(found) if asked.IS_SUMMED else StoreReports.of_stores(asked.NAME, found))


def _of_store(asked: Answer[AnyReport], store: Store, engine: Engine) -> OfStore:
    """Ask about one of several stores: if it can't be answered for, the others still are."""
    from store_core.answers.report import OfStore

    try:
        return OfStore(store.name, asked.on(engine, store))
    except (StoreError, OSError) as error:
        return OfStore(store.name, error=error, is_miss=isinstance(error, asked.MISSES))


def one_root(store: StorePaths) -> str | os.PathLike[str]:
    """Return the path of a store, for answers that write beside it or into it."""
    if isinstance(store, str | os.PathLike):
        return store
    if len(store) != 1:
        raise InvalidOptionError(f"store: expected the root of one store, found {len(store)} paths")
    return store[0]


def _at_times_of(asked: AnyAnswer, stores: Sequence[Store]) -> AnyAnswer:
    """Return an answer with times in ms in place of those before the log's last message."""
    times = [each.name for each in options_of(type(asked)) if each.kind is Kind.TIME]
    relative = {name: getattr(asked, name) for name in times if _is_relative(getattr(asked, name))}
    if not relative:
        return asked
    from store_core.store.read.read_options import with_absolute_times

    return replace(asked, **with_absolute_times(stores, relative, tuple(relative)))


def processes(count: int, on_progress: ProgressSink | None = None) -> LocalEngine:
    """Return the engine that runs parts in this process alone, for 1, or in several.

    Processes are started by ``spawn``, so a script has to ask below ``if __name__ == "__main__":``.

    Parameters
    ----------
    count : int
    on_progress : callable, optional
        Called with a `store_core.store.parts.PartsDone` after each part.

    Raises
    ------
    InvalidOptionError
        If `count` is less than 1.
    """
    if count == 1:
        return InProcess(on_progress)
    from store_core.store.process_pool import ProcessPool

    return ProcessPool(count, on_progress)


def function_of(answer: type[Answer[AnyReport]]) -> Callable[..., AnyReport]:
    """Return an answer as a function: of the store, the options, `config`, `processes` and `on_progress`."""
    name = re.sub(r"(?<=[a-z])([A-Z])", r"_\1", answer.__name__).lower()
    count_of = processes

    def ask(
        store: StorePaths,
        *given: Any,  # noqa: ANN401 -- the options
        config: str | os.PathLike[str] | None = None,
        processes: int = 1,
        on_progress: ProgressSink | None = None,
        **options: Any,  # noqa: ANN401 -- as above
    ) -> AnyReport:
        asked = answer.of(*given, **options)
        return asked.ask(store, config=config, engine=count_of(processes, on_progress))

    outer = inspect.signature(ask).parameters
    inner = [each.replace(annotation=inspect.Parameter.empty) for each in inspect.signature(answer).parameters.values()]
    kept = [each for each in outer.values() if each.name not in {"store", "given", "options"}]
    read = [each.name for each in options_of(answer) if each.kind is Kind.READ]
    from_config = [each.name for each in options_of(answer) if each.kind is Kind.FROM_CONFIG]
    inner = [each for each in inner if each.name not in {*read, *from_config}]
    kept += [inspect.Parameter(name, inspect.Parameter.VAR_KEYWORD) for name in read]
    ask.__signature__ = inspect.Signature([outer["store"], *inner, *kept])  # type: ignore[attr-defined]
    ask.__name__ = ask.__qualname__ = name
    ask.__module__ = answer.__module__
    ask.__doc__ = "\n".join([inspect.getdoc(answer) or "", "", *_parameter_lines(answer)])
    return ask


def _parameter_lines(answer: type[Answer[Any]]) -> Sequence[str]:
    lines = ["Parameters", "----------", "store : path or sequence of paths", "    As of `store_core.read_messages`."]
    for option in options_of(answer):
        if option.kind is not Kind.FROM_CONFIG:
            default = f" By default {option.shown_default}." if option.shown_default else ""
            stars = "**" * (option.kind is Kind.READ)
            lines += [f"{stars}{option.name}", f"    {option.words}{default}"]
    lines += ["config", "    As of `store_core.answers.answer.Answer.ask`."]
    lines += ["processes, on_progress", "    As of `store_core.answers.answer.processes`."]
    return lines


# ---- sums


def summed(stores: Sequence[OfStore]) -> Report[Any]:
    """Return one report over all: facts are added up, and the rows of tables say of which store they are."""
    reports = {each.name: each.report for each in stores if each.report is not None}
    first = next(iter(reports.values()))
    notes = [f"{name}: {note}" for name, report in reports.items() for note in report.found.notes]
    notes += [f"{each.name} is not answered for: {each.error}" for each in stores if each.error and not each.is_miss]
    facts = {
        each.name: _added(each.metadata.get("over"), [getattr(report.found, each.name) for report in reports.values()])
        for each in fields(first.found)
    }
    facts |= {STORE: ", ".join(report.found.store for report in reports.values()), "notes": tuple(notes)}
    tables = {table.name: _joined(table, {name: each.tables[table.name] for name, each in reports.items()})
              for table in first.SCHEMA.tables}  # fmt: skip
    return replace(first, found=replace(first.found, **facts), tables=tables, stores=tuple(stores)).over_stores()


def _added(over: str | None, values: Sequence[Any]) -> Any:  # noqa: ANN401 -- of any fact
    """Return a fact over all stores: numbers are added; others are the one that all have, or the last."""
    known = [value for value in values if value is not None]
    if not known or is_dataclass(known[0]):
        return known[0] if known else None
    if over is None and isinstance(known[0], bool):
        return all(known)
    if isinstance(known[0], tuple):
        return tuple(dict.fromkeys(each for value in known for each in value))
    is_sum = over is None and isinstance(known[0], int)
    return sum(known) if is_sum else min(known) if over == "min" else max(known)


def _joined(table: ReportTable, parts: Mapping[str, pa.Table]) -> pa.Table:
    if table.by:
        return table.summed(pa.concat_tables(parts.values()))
    named = [rows.add_column(0, STORE, pa.array([name] * rows.num_rows, pa.string())) for name, rows in parts.items()]
    return pa.concat_tables(named)


# ---- one after the other


@dataclass(frozen=True, slots=True)
class StoresFacts:
    """The facts of reports about several stores."""

    answer: str = fact("the command whose reports these are")
    store: str = fact("names of the stores")


@dataclass(frozen=True)
class StoreReports(Report[StoresFacts]):
    """Reports of several stores, one after the other: `stores` has them."""

    SCHEMA: ClassVar = ReportSchema.of("stores", 1, StoresFacts)
    tables: Mapping[str, pa.Table] = field(default_factory=dict)

    @classmethod
    def of_stores(cls, answer: str, stores: Sequence[OfStore]) -> StoreReports:
        """Put reports of stores together."""
        return cls(StoresFacts(answer, ", ".join(each.name for each in stores)), stores=tuple(stores))

    @property
    def verdict(self) -> Verdict:
        """What is to act on first."""
        return Verdict.first(each.report.verdict.value for each in self.stores if each.report is not None)

    def _lines(self) -> Iterator[str]:
        failed = [each for each in self.stores if each.error is not None]
        yield f"{self.found.answer} of {counted(len(self.stores), 'store')}: {self.found.store}"
        if failed:
            yield f"{counted(len(failed), 'store')} {agreeing(len(failed), 'is', 'are')} not answered for"

    def to_text(self, width: int | None = 80, zone: tzinfo | None = None) -> str:
        """Return each report under its store's name."""
        texts = (
            f"== {each.name} ==\n{f'error: {each.error}' if each.report is None else each.report.to_text(width, zone)}"
            for each in self.stores
        )
        return "\n\n".join(texts)

    def _content(self, origin: Sequence[tuple[str, str]], most: int) -> dict[str, object]:
        content = super()._content(origin, most)
        parts = [(each.name, each.report._content([], most)) for each in self.stores if each.report is not None]  # noqa: SLF001 -- of the base
        tables = [{**table, "title": f"{name}: {table['title']}"} for name, part in parts for table in part["tables"]]  # type: ignore[attr-defined]
        lines = [f"{name}: {line}" for name, part in parts for line in part["report"]["lines"]]  # type: ignore[index]
        lines += [f"{each.name}: {each.error}" for each in self.stores if each.error is not None]
        report = {**content["report"], "lines": [*self.lines, *lines]}  # type: ignore[dict-item]
        return {"report": report, "plots": [plot for _, part in parts for plot in part["plots"]], "tables": tables}  # type: ignore[attr-defined]
