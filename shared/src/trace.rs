//! W3C trace context: `00-<trace id>-<span id>-<flags>`.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Where a call belongs in its trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceContext {
    trace_id: u128,
    span_id: u64,
    sampled: bool,
}

impl TraceContext {
    /// A new trace.
    pub fn root() -> Self {
        Self { trace_id: fastrand::u128(1..), span_id: fastrand::u64(1..), sampled: true }
    }

    /// A new span below this one.
    pub fn child(&self) -> Self {
        Self { span_id: fastrand::u64(1..), ..*self }
    }

    /// From its three parts.
    pub fn from_parts(trace_id: u128, span_id: u64, sampled: bool) -> Self {
        Self { trace_id, span_id, sampled }
    }

    /// A span below this one whose id follows from a name and a number: whoever knows them can link it without having kept it.
    pub fn derived(&self, name: &str, number: u32) -> Self {
        let parts = [&self.trace_id.to_be_bytes()[..], name.as_bytes(), &[0], &number.to_be_bytes()];
        // FNV-1a: the ids must be the same in the next release.
        let hash = parts
            .concat()
            .iter()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
        Self { span_id: hash.max(1), ..*self }
    }

    /// Trace id, span id, and whether the trace is recorded.
    pub fn parts(&self) -> (u128, u64, bool) {
        (self.trace_id, self.span_id, self.sampled)
    }

    /// The trace id: 32 hex digits.
    pub fn trace_id(&self) -> String {
        format!("{:032x}", self.trace_id)
    }

    /// Reads a `traceparent`. `None` for anything that is not one (a peer's fault must not cost a call).
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        if version.len() != 2 || version == "ff" || trace.len() != 32 || span.len() != 16 || flags.len() != 2 {
            return None;
        }
        let context = Self {
            trace_id: u128::from_str_radix(trace, 16).ok()?,
            span_id: u64::from_str_radix(span, 16).ok()?,
            sampled: u8::from_str_radix(flags, 16).ok()? & 1 == 1,
        };
        (context.trace_id != 0 && context.span_id != 0).then_some(context)
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace_id, self.span_id, u8::from(self.sampled))
    }
}

impl Serialize for TraceContext {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TraceContext {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(d)?;
        Ok(Self::parse(&text).unwrap_or_else(Self::root))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_derived_span_is_the_same_each_time_and_another_for_each_name_and_number() {
        let root = TraceContext::from_parts(7, 8, true);
        let ids = [("a", 1), ("a", 2), ("b", 1), ("", 1)].map(|(name, number)| root.derived(name, number));
        assert_eq!(ids[0], root.derived("a", 1));
        for (at, id) in ids.iter().enumerate() {
            assert_eq!(id.parts().0, 7);
            assert!(!ids[..at].contains(id), "{id}");
        }
        assert_eq!(ids[0].to_string(), "00-00000000000000000000000000000007-2802d6e91069ce66-01");
    }

    #[test]
    fn a_traceparent_survives_the_round_trip_and_garbage_is_none() {
        let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert_eq!(TraceContext::parse(text).map(|t| t.to_string()).as_deref(), Some(text));
        for bad in [
            "",
            "00",
            "00-0-2802d6e91069ce66-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        ] {
            assert_eq!(TraceContext::parse(bad), None, "{bad}");
        }
    }
}
