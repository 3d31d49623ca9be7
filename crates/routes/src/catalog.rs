//! The providers and models that limits can be set on, as the harness has them now.

use serde::Serialize;

use crate::join::all;
use crate::request::parameters;
use crate::response::Answer;
use crate::{Host, Model, Request, Response};

/// The most providers that are told of.
const MOST_PROVIDERS: usize = 200;
/// The most models of one provider.
const MOST_MODELS: usize = 500;
/// The most models in all. Where there are many providers, each has the same share.
const MOST_MODELS_IN_ALL: usize = 5_000;

#[derive(Serialize)]
struct Catalog {
    providers: Vec<Provider>,
    /// Why there are not all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

#[derive(Serialize)]
struct Provider {
    #[serde(flatten)]
    named: Model,
    models: Vec<Model>,
    /// Why there are none, or not all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

pub async fn read(host: &impl Host, request: &Request) -> Answer {
    let [] = parameters(&request.query, [])?;
    let mut providers = host.providers().await;
    let error = cut(&mut providers, MOST_PROVIDERS).then(|| {
        format!("there are more than {MOST_PROVIDERS} providers, the first {MOST_PROVIDERS} are told")
    });
    let share = MOST_MODELS.min(MOST_MODELS_IN_ALL / providers.len().max(1));
    let lists = all(providers.iter().map(|provider| host.models(provider.id.clone()))).await;
    let told = |(named, list): (Model, Result<Vec<Model>, String>)| {
        let (models, error) = match list {
            Ok(mut models) => {
                let error = cut(&mut models, share).then(|| {
                    format!("{} lists more than {share} models, the first {share} are told", named.id)
                });
                (models, error)
            }
            Err(error) => (Vec::new(), Some(error)),
        };
        Provider { named, models, error }
    };
    let providers = providers.into_iter().zip(lists).map(told).collect();
    Ok(Response::json(200, &Catalog { providers, error }))
}

/// Whether there was something to cut off.
fn cut<T>(list: &mut Vec<T>, most: usize) -> bool {
    let longer = list.len() > most;
    list.truncate(most);
    longer
}
