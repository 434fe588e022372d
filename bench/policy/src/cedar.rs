//! The same ten rules for Cedar. What it is asked with is made beforehand: only the decision is measured.

use cedar_policy::{Authorizer, Context, Decision, Entities, PolicySet, Request};
use serde_json::json;

use crate::Failure;
use crate::ours::PATH;

pub(crate) struct World {
    authorizer: Authorizer,
    policies: PolicySet,
    entities: Entities,
    request: Request,
}

impl World {
    pub(crate) fn new() -> Result<World, Failure> {
        let mut text = String::new();
        for number in 0..10 {
            let effect = if number % 10 == 9 { "forbid" } else { "permit" };
            text += &format!(
                "{effect}(principal in Tag::\"agent\", action == Action::\"fs.write\", resource)
                 when {{ resource.path like \"m{number}/*\" }};\n"
            );
        }
        let entities = json!([
            {"uid": {"type": "Caller", "id": "local"}, "attrs": {}, "parents": [{"type": "Tag", "id": "agent"}]},
            {"uid": {"type": "File", "id": "file"}, "attrs": {"path": PATH}, "parents": []},
        ]);
        let context = Context::from_json_value(json!({"size": 100}), None)?;
        Ok(World {
            authorizer: Authorizer::new(),
            policies: text.parse()?,
            entities: Entities::from_json_value(entities, None)?,
            request: Request::new(
                "Caller::\"local\"".parse()?,
                "Action::\"fs.write\"".parse()?,
                "File::\"file\"".parse()?,
                context,
                None,
            )?,
        })
    }

    pub(crate) fn allows(&self) -> bool {
        let response = self.authorizer.is_authorized(&self.request, &self.policies, &self.entities);
        response.decision() == Decision::Allow
    }
}
