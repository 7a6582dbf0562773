//! Values of a catalogue document whose form is narrower than their type, for its JSON Schema.

#![expect(dead_code, reason = "a type here describes a form, and no value of it is built")]

/// Id of a row.
#[derive(schemars::JsonSchema)]
pub(crate) struct RowId(#[schemars(regex(pattern = r"^[a-z0-9_-]{1,64}$"))] String);

/// Permanent code of a row. Default: the code assigned earlier, or the next free one.
#[derive(schemars::JsonSchema)]
pub(crate) struct RowCode(#[schemars(range(min = 1, max = u32::MAX))] u32);

/// Arm of an experiment: `experiment/arm`.
#[derive(schemars::JsonSchema)]
pub(crate) struct ArmName(#[schemars(regex(pattern = r"^[a-z0-9_-]{1,64}/[a-z0-9_-]{1,64}$"))] String);
