//! Writes to WorkloadActionReceipts.

use kube::api::{ObjectMeta, PostParams};
use serde_json::json;

use super::{Done, WorkloadActions, api, merge, only, timed};
use crate::api::marks;
use crate::api::receipt::WorkloadActionReceipt;
use crate::controllers::error::Error;
use crate::logic::facts::Identity;
use crate::logic::workload_action::effect::{NewReceipt, RefusalKind};
use crate::logic::world::{Kind, Object, Source};

/// Makes the receipt. One that is there already is as good if the same action wrote it; else the action ran before.
pub async fn write(ctx: &WorkloadActions, new: &NewReceipt) -> Result<Done, Error> {
    let NewReceipt { key, spec } = new;
    let id = Identity { key: key.clone(), ..Identity::default() };
    let receipt = WorkloadActionReceipt {
        metadata: ObjectMeta {
            namespace: Some(key.namespace.clone()),
            name: Some(key.name.clone()),
            ..ObjectMeta::default()
        },
        spec: spec.clone(),
    };
    let api = api::<WorkloadActionReceipt>(ctx, &id);
    let params = PostParams { field_manager: Some(marks::MANAGER.to_owned()), ..PostParams::default() };
    let words = match timed(ctx, api.create(&params, &receipt)).await {
        Ok(written) => return Ok(Done::changed(object(written))),
        Err(Error::Exists(words)) => words,
        Err(Error::Gone(words)) => return Err(Error::refused(RefusalKind::Gone, words)),
        Err(error) => return Err(error),
    };
    let found = timed(ctx, api.get(&key.name)).await?;
    let same = found.spec.action_uid == spec.action_uid;
    let found = object(found);
    if same {
        return Ok(Done::changed(found));
    }
    ctx.world.write(|world| world.apply(found, Source::Own));
    Err(Error::refused(RefusalKind::Taken, words))
}

/// Notes that the action did not fully succeed.
pub async fn fail(ctx: &WorkloadActions, receipt: &Identity) -> Result<Done, Error> {
    let patch = json!({
        "metadata": {"uid": receipt.uid, "resourceVersion": receipt.version},
        "spec": {"outcome": "Failed"},
    });
    match merge::<WorkloadActionReceipt>(ctx, receipt, &patch).await {
        Err(Error::Gone(_)) => Ok(Done::gone(Kind::Receipt, receipt)),
        written => Ok(Done::changed(object(written?))),
    }
}

/// Takes the receipt back.
pub async fn delete(ctx: &WorkloadActions, receipt: &Identity) -> Result<Done, Error> {
    let api = api::<WorkloadActionReceipt>(ctx, receipt);
    match timed(ctx, api.delete(&receipt.key.name, &only(receipt))).await {
        Ok(_) | Err(Error::Gone(_)) => Ok(Done::gone(Kind::Receipt, receipt)),
        Err(error) => Err(error),
    }
}

/// The receipt as a fact.
#[expect(clippy::needless_pass_by_value, reason = "the shape that every kind's conversion has here")]
pub fn object(receipt: WorkloadActionReceipt) -> Object {
    Object::Receipt((&receipt).into())
}
