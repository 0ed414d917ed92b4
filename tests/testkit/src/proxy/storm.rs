//! Storms: a share of the requests fails without reaching the server. A seed makes the failures reproducible.

use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::Response;
use serde_json::json;

/// One way in which a request fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// 409: a concurrent write came first. Mutating requests only.
    Conflict,
    /// 429 with `Retry-After: 1`.
    TooMany,
    /// 503: the server is unavailable.
    Unavailable,
    /// 504 after the server has processed the request: the outcome is unknown.
    LostAnswer,
}

impl Fault {
    /// Answer that the client receives.
    pub fn answer(self) -> Response {
        let (code, reason, message) = match self {
            Self::Conflict => {
                (409, "Conflict", "the object has been modified; please apply your changes to the latest version")
            }
            Self::TooMany => (429, "TooManyRequests", "too many requests, please try again later"),
            Self::Unavailable => (503, "ServiceUnavailable", "the server is currently unable to handle the request"),
            Self::LostAnswer => (504, "Timeout", "request did not complete within the allotted time"),
        };
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message, "reason": reason, "code": code,
            "details": if code == 429 { json!({"retryAfterSeconds": 1}) } else { json!({}) },
        });
        let mut answer = Response::new(Body::from(status.to_string()));
        *answer.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        answer.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
        if self == Self::TooMany {
            answer.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from_static("1"));
        }
        answer
    }
}

/// Share of the failing requests, and how they fail.
#[derive(Clone, Debug)]
pub struct Storm {
    percent: u64,
    faults: Vec<Fault>,
    state: u64,
}

impl Storm {
    /// `percent` of the requests fail in one of these ways, the same ones for the same seed.
    pub fn new(percent: u64, seed: u64, faults: &[Fault]) -> Self {
        Self { percent, faults: faults.to_vec(), state: seed }
    }

    /// Decides whether and how the next request fails.
    pub fn strike(&mut self, mutating: bool) -> Option<Fault> {
        let (luck, which) = (self.draw(), self.draw());
        let able: Vec<Fault> = self
            .faults
            .iter()
            .copied()
            .filter(|fault| mutating || matches!(fault, Fault::TooMany | Fault::Unavailable))
            .collect();
        if luck % 100 >= self.percent || able.is_empty() {
            return None;
        }
        able.get(usize::try_from(which).unwrap_or(0) % able.len()).copied()
    }

    /// SplitMix64.
    fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}
