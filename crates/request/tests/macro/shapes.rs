use hotcell_request::{ToolError, tool};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Add {
    a: f64,
}

/// Adds.
#[tool(name = "math.add", version = "1.0.0", effects(pure))]
fn two(a: Add, b: Add) -> Result<f64, ToolError> {
    Ok(a.a + b.a)
}

/// Adds.
#[tool(name = "math.add", version = "1.0.0", effects(pure))]
fn nothing(input: Add) {
    drop(input);
}

/// Adds.
#[tool(name = "math.add", version = "1.0.0", effects(pure))]
async fn later(input: Add) -> Result<f64, ToolError> {
    Ok(input.a)
}

/// Adds.
#[tool(name = "math.add", version = "1.0.0", effects(pure))]
fn any<T>(input: T) -> Result<f64, ToolError> {
    drop(input);
    Ok(0.0)
}

fn main() {}
