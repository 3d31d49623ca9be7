//! Arguments as JavaScript hands them over. Conversion never fails by itself, so that what is wrong with an argument is
//! told with our code and the argument's name instead of napi's.

use napi::bindgen_prelude::{FromNapiValue, TypeName, ValidateNapiValue};
use napi::{ValueType, sys};

use crate::error::{Code, Error, Result};

/// The greatest integer a JavaScript number holds exactly.
const MAX_SAFE: f64 = 9_007_199_254_740_991.0;

/// An argument that may turn out not to be a `T`.
pub struct Arg<T>(napi::Result<T>);

impl<T> Arg<T> {
    /// One that is not.
    pub fn wrong(error: napi::Error) -> Self {
        Self(Err(error))
    }

    /// The value.
    pub fn get(self, name: &str) -> Result<T> {
        self.0.map_err(|error| bad(name, &error.reason))
    }
}

impl Arg<f64> {
    /// The value, if it counts something: an id, an instant.
    pub fn integer(self, name: &str) -> Result<u64> {
        integer(self.get(name)?, name)
    }
}

impl Arg<Option<f64>> {
    /// The value, if there is one and it counts something.
    pub fn integer(self, name: &str) -> Result<Option<u64>> {
        self.get(name)?.map(|value| integer(value, name)).transpose()
    }
}

/// A number that counts something.
pub fn integer(value: f64, name: &str) -> Result<u64> {
    if value.fract() == 0.0 && (0.0..=MAX_SAFE).contains(&value) {
        Ok(value as u64)
    } else {
        Err(bad(name, &format!("expected an integer from 0 to 2^53 - 1, found {value}")))
    }
}

/// What is wrong with an argument.
pub fn bad(name: &str, reason: &str) -> Error {
    Error::new(Code::BadArgument, format!("{name}: {reason}"))
}

impl<T: TypeName> TypeName for Arg<T> {
    fn type_name() -> &'static str {
        T::type_name()
    }

    fn value_type() -> ValueType {
        T::value_type()
    }
}

impl<T: FromNapiValue + TypeName> ValidateNapiValue for Arg<T> {}

impl<T: FromNapiValue> FromNapiValue for Arg<T> {
    unsafe fn from_napi_value(env: sys::napi_env, value: sys::napi_value) -> napi::Result<Self> {
        // SAFETY: both pointers come from the caller, under the same contract.
        Ok(Self(unsafe { T::from_napi_value(env, value) }))
    }
}
