//! What is asked, and how it is read.

use crate::Response;

/// One request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The method, in capitals.
    pub method: String,
    /// The path, without the query.
    pub path: String,
    /// What follows the `?`, still encoded; empty if there is none.
    pub query: String,
    /// Header names in lower case, with their values.
    pub headers: Vec<(String, String)>,
    /// The body, whole.
    pub body: Vec<u8>,
    /// What only the host knows, a JSON object.
    pub host_status: String,
}

impl Request {
    /// Whether the body says that it is JSON. Parameters of the type do not matter: JSON has one encoding.
    pub(crate) fn is_json(&self) -> bool {
        let mut types = self.headers.iter().filter(|(name, _)| name == "content-type");
        let essence = types.next().and_then(|(_, value)| value.split(';').next());
        essence.is_some_and(|essence| essence.trim().eq_ignore_ascii_case("application/json"))
            && types.next().is_none()
    }
}

/// The values of the known parameters of a query, each at most once, in the order of `known`.
///
/// # Errors
/// An answer of status 400 that names the parameter.
pub fn parameters<const N: usize>(query: &str, known: [&str; N]) -> Result<[Option<String>; N], Response> {
    let mut values = [const { None }; N];
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let name = decode(key).unwrap_or_else(|| key.to_owned());
        let Some(at) = known.iter().position(|known| *known == name) else {
            let expected = match known.as_slice() {
                [] => "this path takes no parameters".to_owned(),
                known => format!("expected `{}`", known.join("` or `")),
            };
            return Err(Response::error(400, &format!("`{}` is unknown, {expected}", brief(&name))));
        };
        let Some(value) = decode(value) else {
            return Err(Response::error(400, &format!("`{name}` is not percent-encoded UTF-8")));
        };
        if values[at].replace(value).is_some() {
            return Err(Response::error(400, &format!("`{name}` is given twice")));
        }
    }
    Ok(values)
}

fn decode(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                (digit()? * 16 + digit()?) as u8
            }
            other => other,
        });
    }
    String::from_utf8(decoded).ok()
}

/// A text from outside as a sentence bears it.
pub fn brief(text: &str) -> String {
    const LONGEST: usize = 200;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
