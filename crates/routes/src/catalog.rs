//! The providers and models that limits can be set on, as the harness has them now.

use serde::Serialize;

use crate::join::all;
use crate::request::parameters;
use crate::response::Answer;
use crate::{Host, Model, Request, Response};

#[derive(Serialize)]
struct Catalog {
    providers: Vec<Provider>,
}

#[derive(Serialize)]
struct Provider {
    #[serde(flatten)]
    named: Model,
    models: Vec<Model>,
    /// Why there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

pub async fn read(host: &impl Host, request: &Request) -> Answer {
    let [] = parameters(&request.query, [])?;
    let providers = host.providers().await;
    let lists = all(providers.iter().map(|provider| host.models(provider.id.clone()))).await;
    let providers = providers.into_iter().zip(lists).map(|(named, list)| {
        let (models, error) = list.map_or_else(|error| (Vec::new(), Some(error)), |models| (models, None));
        Provider { named, models, error }
    });
    Ok(Response::json(200, &Catalog { providers: providers.collect() }))
}
