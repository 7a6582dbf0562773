//! Which branches of the module are rare, told to the engine that compiles it: code that hardly ever runs is then laid behind
//! what does, and a request goes through a seventh fewer lines and pages of machine code.
//!
//! The module is built a second time with a counter at each branch, is called as recorded traffic calls it
//! (`edge/branches/`), and what was counted becomes the section `metadata.code.branch_hint` of WebAssembly's branch hinting
//! (V8 14.1 follows it; an engine that does not passes over it). The code itself is not changed.

use std::convert::Infallible;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use wasm_encoder::reencode::{Error, Reencode, utils};
use wasm_encoder::{
    BranchHint, BranchHints, CodeSection, ExportKind, ExportSection, Function, FunctionSection, Instruction, MemArg,
    MemorySection, MemoryType, Module, RawSection, Section as _, SectionId, TypeSection, ValType,
};
use wasmparser::{FunctionBody, Operator, Parser, Payload, TypeRef};

use crate::project::Project;
use crate::stop::Stop;
use crate::{npm, steps};

/// So many times one way for each time the other: the other is rare.
pub(crate) const RARE: u32 = 20;
/// A branch passed less often says nothing.
pub(crate) const TIMES: u32 = 4;
/// The memory of counts: 64 KiB each, 8,192 branches.
const PAGES: u64 = 64;
const COUNTS: &str = "branch_counts";
const PLAY: &str = "edge/branches/play.mjs";
/// What decides beside the module which branches are rare.
pub(crate) const INPUTS: [&str; 2] = [PLAY, "edge/branches/traffic.jsonl"];

/// Puts the hints into a folder's `engine_bg.wasm`.
pub(crate) fn hint(project: &Project, folder: &Path, stop: &Stop) -> Result<()> {
    let module = folder.join("engine_bg.wasm");
    let wasm = std::fs::read(&module).with_context(|| format!("cannot read {}", module.display()))?;
    let (counting, counts) = (folder.join("counting.wasm"), folder.join("counts"));
    std::fs::write(&counting, counting_module(&wasm)?)?;
    let mut command = project.command(npm::node(project)?);
    command.arg(PLAY).arg(folder.join("engine.js")).args([&counting, &counts]);
    steps::run("counting the module's branches", &mut command, stop)?;
    let counts = std::fs::read(&counts).with_context(|| format!("{PLAY} left no counts"))?;
    std::fs::write(&module, hinted(&wasm, &counts)?)?;
    Ok(())
}

/// The functions that a module imports come before its own, by number.
fn imported(wasm: &[u8]) -> Result<u32> {
    let mut functions = 0;
    for payload in Parser::new(0).parse_all(wasm) {
        if let Payload::ImportSection(imports) = payload? {
            for import in imports.into_imports() {
                functions += u32::from(matches!(import?.ty, TypeRef::Func(_)));
            }
        }
    }
    Ok(functions)
}

fn is_branch(operator: &Operator<'_>) -> bool {
    matches!(operator, Operator::If { .. } | Operator::BrIf { .. })
}

/// The same module, that counts at each branch how often its condition was zero and how often not, in a memory of its own
/// that it exports: two little-endian 32-bit numbers a branch, in the order of the code.
fn counting_module(wasm: &[u8]) -> Result<Vec<u8>> {
    let mut counting = Counting { counter: imported(wasm)?, counter_type: 0, branches: 0 };
    let mut module = Module::new();
    counting.parse_core_module(&mut module, Parser::new(0), wasm)?;
    ensure!(
        u64::from(counting.branches) <= PAGES * 8_192,
        "{} branches are more than there is room for",
        counting.branches
    );
    Ok(module.finish())
}

/// Writes a module anew with a counter: one more type, function and memory.
struct Counting {
    /// The counter's number, behind all functions; until those are met, behind the imported ones.
    counter: u32,
    counter_type: u32,
    branches: u32,
}

impl Reencode for Counting {
    type Error = Infallible;

    fn parse_type_section(
        &mut self,
        types: &mut TypeSection,
        section: wasmparser::TypeSectionReader<'_>,
    ) -> Result<(), Error<Infallible>> {
        utils::parse_type_section(self, types, section)?;
        self.counter_type = types.len();
        types.ty().function([ValType::I32, ValType::I32], [ValType::I32]);
        Ok(())
    }

    fn parse_function_section(
        &mut self,
        functions: &mut FunctionSection,
        section: wasmparser::FunctionSectionReader<'_>,
    ) -> Result<(), Error<Infallible>> {
        utils::parse_function_section(self, functions, section)?;
        self.counter += functions.len();
        functions.function(self.counter_type);
        Ok(())
    }

    fn parse_memory_section(
        &mut self,
        memories: &mut MemorySection,
        section: wasmparser::MemorySectionReader<'_>,
    ) -> Result<(), Error<Infallible>> {
        utils::parse_memory_section(self, memories, section)?;
        memories.memory(MemoryType {
            minimum: PAGES,
            maximum: None,
            memory64: false,
            shared: false,
            page_size_log2: None,
        });
        Ok(())
    }

    fn parse_export_section(
        &mut self,
        exports: &mut ExportSection,
        section: wasmparser::ExportSectionReader<'_>,
    ) -> Result<(), Error<Infallible>> {
        utils::parse_export_section(self, exports, section)?;
        exports.export(COUNTS, ExportKind::Memory, 1);
        Ok(())
    }

    fn parse_code_section(
        &mut self,
        code: &mut CodeSection,
        section: wasmparser::CodeSectionReader<'_>,
    ) -> Result<(), Error<Infallible>> {
        utils::parse_code_section(self, code, section)?;
        let (condition, branch, place) = (0, 1, 2);
        let count = MemArg { offset: 0, align: 2, memory_index: 1 };
        let mut counter = Function::new([(1, ValType::I32)]);
        let mut body = counter.instructions();
        body.local_get(branch).i32_const(8).i32_mul();
        body.i32_const(4).i32_const(0).local_get(condition).select().i32_add().local_tee(place);
        body.local_get(place).i32_load(count).i32_const(1).i32_add().i32_store(count);
        body.local_get(condition).end();
        code.function(&counter);
        Ok(())
    }

    fn parse_function_body(&mut self, code: &mut CodeSection, body: FunctionBody<'_>) -> Result<(), Error<Infallible>> {
        let mut function = self.new_function_with_parsed_locals(&body)?;
        let mut operators = body.get_operators_reader()?;
        while !operators.eof() {
            let operator = operators.read()?;
            if is_branch(&operator) {
                function.instruction(&Instruction::I32Const(self.branches.cast_signed()));
                function.instruction(&Instruction::Call(self.counter));
                self.branches += 1;
            }
            function.instruction(&self.instruction(operator)?);
        }
        code.function(&function);
        Ok(())
    }
}

/// The module with a hint at each branch that went one way rarely.
fn hinted(wasm: &[u8], counts: &[u8]) -> Result<Vec<u8>> {
    let mut counts = counts.as_chunks::<4>().0.as_chunks::<2>().0.iter().map(|two| two.map(u32::from_le_bytes));
    let mut function = imported(wasm)?;
    let mut hints = BranchHints::new();
    for payload in Parser::new(0).parse_all(wasm) {
        let Payload::CodeSectionEntry(body) = payload? else { continue };
        let mut rare = Vec::new();
        let mut operators = body.get_operators_reader()?;
        while !operators.eof() {
            let (operator, at) = operators.read_with_offset()?;
            if is_branch(&operator) {
                let taken = counts.next().and_then(usually).map(u32::from);
                let branch_func_offset = u32::try_from(at - body.range().start)?;
                rare.extend(taken.map(|branch_hint_value| BranchHint { branch_func_offset, branch_hint_value }));
            }
        }
        if !rare.is_empty() {
            hints.function_hints(function, rare);
        }
        function += 1;
    }
    let mut all = wasm.get(..8).context("not a module")?.to_vec();
    for payload in Parser::new(0).parse_all(wasm) {
        let Some((id, range)) = payload?.as_section() else { continue };
        if id == SectionId::Code as u8 {
            hints.append_to(&mut all);
        }
        RawSection { id, data: wasm.get(range).context("a section beyond the end")? }.append_to(&mut all);
    }
    Ok(all)
}

/// Whether a branch is taken as a rule, where there is one.
fn usually([not_taken, taken]: [u32; 2]) -> Option<bool> {
    let rule = |more: u32, less: u32| more >= TIMES && less <= more / RARE;
    rule(taken, not_taken).then_some(true).or(rule(not_taken, taken).then_some(false))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]
mod tests {
    use wasm_encoder::{BlockType, EntityType, ImportSection};
    use wasmparser::KnownCustom;

    use super::*;

    /// One imported function, and one of its own with an `if` and, in a loop, a `br_if`.
    fn module() -> Vec<u8> {
        let (mut types, mut imports) = (TypeSection::new(), ImportSection::new());
        let (mut functions, mut code) = (FunctionSection::new(), CodeSection::new());
        types.ty().function([ValType::I32], []);
        imports.import("a", "b", EntityType::Function(0));
        functions.function(0);
        let mut body = Function::new([(1, ValType::I32)]);
        body.instructions().local_get(0).if_(BlockType::Empty).end();
        body.instructions().loop_(BlockType::Empty).local_get(0).br_if(0).end().end();
        code.function(&body);
        let mut module = Module::new();
        module.section(&types).section(&imports).section(&functions).section(&code);
        module.finish()
    }

    /// Function, hint and the hinted instruction's opcode.
    fn hints(wasm: &[u8]) -> Vec<(u32, bool, u8)> {
        let (mut hints, mut code) = (Vec::new(), 0);
        for payload in Parser::new(0).parse_all(wasm) {
            match payload.unwrap() {
                Payload::CustomSection(section) => {
                    let KnownCustom::BranchHints(functions) = section.as_known() else { panic!("another section") };
                    for function in functions.into_iter().map(Result::unwrap) {
                        hints.extend(function.hints.into_iter().map(|hint| (function.func, hint.unwrap())));
                    }
                }
                Payload::CodeSectionEntry(body) => code = body.range().start,
                _ => {}
            }
        }
        let opcode = |at: u32| wasm[code + usize::try_from(at).unwrap()];
        hints.into_iter().map(|(function, hint)| (function, hint.taken, opcode(hint.func_offset))).collect()
    }

    fn counts(all: &[[u32; 2]]) -> Vec<u8> {
        all.iter().flatten().flat_map(|count| count.to_le_bytes()).collect()
    }

    #[test]
    fn a_hint_is_at_its_branch_and_nothing_else_is_changed() {
        let (wasm, [branch, branch_in_loop]) = (module(), [0x04, 0x0d]);
        let with = hinted(&wasm, &counts(&[[100, 1], [0, 50]])).unwrap();
        assert_eq!(hints(&with), [(1, false, branch), (1, true, branch_in_loop)]);
        let with = hinted(&wasm, &counts(&[[50, 50], [3, 61]])).unwrap();
        assert_eq!(hints(&with), [(1, true, branch_in_loop)]);
        let code = &wasm[wasm.len() - 20..];
        assert!(with.ends_with(code) && with.len() > wasm.len());
    }

    #[test]
    fn a_branch_says_nothing_that_goes_both_ways_or_is_hardly_passed() {
        for (counts, says) in [
            ([0, 0], None),
            ([0, 3], None),
            ([0, 4], Some(true)),
            ([4, 0], Some(false)),
            ([1, 19], None),
            ([1, 20], Some(true)),
            ([40, 3], None),
        ] {
            assert_eq!(usually(counts), says, "{counts:?}");
        }
    }

    #[test]
    fn a_counter_stands_before_each_branch() {
        let counting = counting_module(&module()).unwrap();
        let mut before = Vec::new();
        for payload in Parser::new(0).parse_all(&counting) {
            let Payload::CodeSectionEntry(body) = payload.unwrap() else { continue };
            let all: Vec<_> = body.get_operators_reader().unwrap().into_iter().map(Result::unwrap).collect();
            let branches = all.windows(3).filter(|three| is_branch(&three[2]));
            before.extend(branches.map(|three| format!("{:?}", &three[..2])));
        }
        let counter = |branch| format!("[I32Const {{ value: {branch} }}, Call {{ function_index: 2 }}]");
        assert_eq!(before, [counter(0), counter(1)]);
    }
}
