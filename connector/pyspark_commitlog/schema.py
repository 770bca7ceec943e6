# SPDX-License-Identifier: Apache-2.0
"""The DataFrame's schema, and the Arrow schema that must match it exactly.

Spark compares the first Arrow batch with the DataFrame's schema: names, order, types and nullability, including those
of list elements and map values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from store_core.errors import InvalidOptionError
from store_core.format.columns import COLUMNS, Column, arrow_schema, resolve_columns

if TYPE_CHECKING:
    from collections.abc import Sequence


_SPARK_TYPES: Final[dict[pa.DataType, DataType]] = {
    pa.string(): StringType(),
    pa.binary(): BinaryType(),
    pa.bool_(): BooleanType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.timestamp("us", tz="UTC"): TimestampType(),
}


def spark_type(kind: pa.DataType) -> DataType:
    """Return the Spark type of a column's Arrow type."""
    if pa.types.is_list(kind):
        return ArrayType(spark_type(kind.value_type), kind.value_field.nullable)
    if pa.types.is_map(kind):
        return MapType(spark_type(kind.key_type), spark_type(kind.item_type), kind.item_field.nullable)
    return _SPARK_TYPES[kind]


def dataframe_schema(columns: Sequence[str], *, nullable: bool, of: Sequence[Column] = COLUMNS) -> StructType:
    """Return the schema of a DataFrame.

    * `nullable`: Whether damaged ranges become rows, as with mode PERMISSIVE: columns of a message are null in such
      rows.
    """
    fields = arrow_schema(columns, nullable=nullable, columns=of)
    return StructType([StructField(field.name, spark_type(field.type), field.nullable) for field in fields])


@dataclass(frozen=True, slots=True)
class ReadSchema:
    """The columns to read, and the Arrow schema that Spark expects."""

    columns: tuple[str, ...]  # canonical names, in the DataFrame's order
    arrow: pa.Schema  # the same columns, with names and nullability as in the DataFrame's schema

    @classmethod
    def of(
        cls,
        schema: StructType,
        *,
        named: Sequence[str] | None,
        nullable: bool = False,
        of: Sequence[Column] = COLUMNS,
    ) -> Self:
        """Check the schema of a DataFrame, which may come from the user, against the columns of a view.

        * `named`: Canonical names from option ``columns``, if it was given.
        * `nullable`, `of`: As for `dataframe_schema`.
        """
        columns = resolve_columns(schema.fieldNames(), of)
        if named is not None and tuple(named) != columns:
            raise InvalidOptionError(
                f"option columns says {', '.join(named)}, and the schema says {', '.join(columns)}; "
                "give one of the two, or the same columns in the same order"
            )
        stored = arrow_schema(columns, nullable=nullable, columns=of)
        return cls(columns, pa.schema([_field(ours, theirs) for ours, theirs in zip(stored, schema, strict=True)]))

    def conform(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch with the names and the nullability that Spark expects. Copies no data."""
        arrays = [
            array if array.type == field.type else array.cast(field.type)
            for array, field in zip(batch.columns, self.arrow, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow)


def _field(ours: pa.Field, theirs: StructField) -> pa.Field:
    expected, found = spark_type(ours.type).simpleString(), theirs.dataType.simpleString()
    if expected != found:
        raise InvalidOptionError(f"column {theirs.name!r} of the schema: expected type {expected}, found {found}")
    if ours.nullable and not theirs.nullable:
        raise InvalidOptionError(
            f"column {theirs.name!r} of the schema is declared NOT NULL, but can be null; declare it {expected} alone"
        )
    return pa.field(theirs.name, _with_nullability(ours.type, theirs.dataType), theirs.nullable)


def _with_nullability(kind: pa.DataType, declared: DataType) -> pa.DataType:
    """Declare list elements and map values as the schema does; ours are never null, so either declaration is true."""
    if isinstance(declared, ArrayType):
        return pa.list_(kind.value_field.with_nullable(declared.containsNull))
    if isinstance(declared, MapType):
        return pa.map_(kind.key_field, kind.item_field.with_nullable(declared.valueContainsNull))
    return kind
