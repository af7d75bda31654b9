use super::tree::{Tree, Violation};

/// Lines of a function, from `fn` to its closing brace.
const FUNCTION_LINES_MAX: usize = 70;
/// Lines of code in a file: no blank lines, no comments, no tests.
const FILE_LINES_MAX: usize = 400;
/// Begins the line of the module's documentation that gives the reason.
const REASON: &str = "Long because";

pub(super) fn functions(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (path, rust) in tree.rust() {
        for function in &rust.functions {
            let first = rust.scan.line(function.span.start);
            let lines = rust.scan.line(function.span.end - 1) - first + 1;
            if lines > FUNCTION_LINES_MAX {
                let text = format!(
                    "{}() has {lines} lines, at most {FUNCTION_LINES_MAX}: split it",
                    function.name
                );
                violations.push(Violation::at(path, first, text));
            }
        }
    }
    violations
}

pub(super) fn files(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (path, rust) in tree.rust() {
        let code = rust.scan.lines().filter(|(_, line)| !line.trim().is_empty());
        let lines = code.filter(|(offset, _)| !rust.is_in_test_item(*offset)).count();
        let has_reason = rust.scan.module_docs().any(|line| line.starts_with(REASON));
        if lines > FILE_LINES_MAX && !has_reason {
            let text = format!(
                "{lines} lines of code, at most {FILE_LINES_MAX}: split it, or begin a line of \
                 the module's documentation with {REASON:?}"
            );
            violations.push(Violation::at(path, 0, text));
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::{super::tree::testing::says, *};

    #[test]
    fn a_function_of_71_lines_is_too_long() {
        let of = |lines: usize| format!("\nfn long() {{\n{}}}\n", "    a();\n".repeat(lines - 2));
        says(functions, &[("a.rs", &of(70))], &[]);
        let expected = "a.rs:2: long() has 71 lines, at most 70: split it";
        says(functions, &[("a.rs", &of(71))], &[expected]);
    }

    #[test]
    fn a_file_of_401_lines_of_code_is_too_long() {
        let code = "const A: u8 = 1;\n".repeat(400);
        let tests = "#[cfg(test)]\nmod tests {\n    fn a() {}\n}\n";
        says(files, &[("a.rs", &format!("// why\n\n{code}{tests}"))], &[]);
        let long = format!("{code}const B: &str = \"\n    text\";\n");
        let expected = "a.rs: 402 lines of code, at most 400: split it, or begin a line of the \
                        module's documentation with \"Long because\"";
        says(files, &[("a.rs", &long)], &[expected]);
    }

    #[test]
    fn a_long_file_may_give_its_reason() {
        let code = "const A: u8 = 1;\n".repeat(500);
        says(files, &[("a.rs", &format!("//! A.\n//!\n//! Long because of it.\n{code}"))], &[]);
        says(
            files,
            &[("a.rs", &format!("//! Not Long because.\n{code}"))],
            &["a.rs: 500 lines of code, at most 400: split it, or begin a line of the module's \
               documentation with \"Long because\""],
        );
    }
}
