//! Differences between an autoscaler and the loop that is made from it.

/// A difference that applies to an object. The page of ClosedLoop has a row for each, with the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ImportDifference {
    FewerPods,
    EndedPods,
    OwnPods,
    DeletedPods,
    NoReadyPods,
    Surge,
    ExactDivision,
    SmallSamples,
    AllocatedResources,
    WindowHolds,
    PercentOfZero,
    Restart,
    UsedOnce,
    Flags,
    LoweringWindow,
    Activity,
    WakeToNumber,
    ZeroInSteps,
    CronAtOnce,
    ClockChange,
    EmptyAnswer,
    AssumedNeverLowers,
    ScalerActivity,
    FailedFormula,
    KedaStays,
    FallbackOfKeda,
}

impl ImportDifference {
    /// The difference as a sentence.
    pub fn text(self) -> &'static str {
        match self {
            Self::FewerPods => {
                "while fewer pods exist than the number of replicas, a value above the target never lowers the number"
            }
            Self::EndedPods => "pods that have ended (Succeeded) do not count; the HPA counts them as not measured",
            Self::OwnPods => "only pods that the target owns count; the HPA counts all pods with the labels",
            Self::DeletedPods => "ready pods that are being deleted do not count; for a Value, the HPA counts them",
            Self::NoReadyPods => "a Value without ready pods changes nothing",
            Self::Surge => {
                "the number of replicas is spec.replicas; the HPA takes status.replicas, which includes the surge of a rollout"
            }
            Self::ExactDivision => {
                "numbers are divided exactly; rounding of floats can make the HPA's number one larger"
            }
            Self::SmallSamples => "values are not rounded up to thousandths",
            Self::AllocatedResources => {
                "while a resize is pending, the utilization is that of the allocated resources, not of the spec"
            }
            Self::WindowHolds => {
                "a stabilization window only holds the number; without behavior, the HPA's window can also raise it"
            }
            Self::PercentOfZero => "a percent of few replicas allows a change of at least one",
            Self::Restart => "windows and rates survive a restart; the HPA forgets them",
            Self::UsedOnce => "a value that was measured before the last change of the replicas is not used again",
            Self::Flags => {
                "tolerance, pace and start-up times are the defaults of kube-controller-manager, whatever its flags are"
            }
            Self::LoweringWindow => "the window for lowering is 300s, whatever the flag of kube-controller-manager is",
            Self::Activity => {
                "with min 0, the last replica is removed once no metric is active, after the cooldown; the number alone \
                 decides in the HPA"
            }
            Self::WakeToNumber => {
                "from 0, the loop goes to the number that the metrics ask for, not first to the minimum"
            }
            Self::ZeroInSteps => "the way to 0 follows `down`; KEDA goes from any number to 0 in one step",
            Self::CronAtOnce => {
                "a window of a cron trigger sets its number at once; in KEDA, tolerance, policies and windows of the HPA apply"
            }
            Self::ClockChange => {
                "if clocks skip the start of a window, it opens right after the gap; KEDA opens it at the end before"
            }
            Self::EmptyAnswer => {
                "an empty answer of Prometheus is unknown and changes nothing; KEDA takes it as 0 unless ignoreNullValues \
                 is false"
            }
            Self::AssumedNeverLowers => {
                "the fallback raises to its number of replicas and never lowers; after it, the time without a value \
                 counts, not the number of failures"
            }
            Self::ScalerActivity => {
                "an external scaler is active while its value is above 0; KEDA asks it for IsActive"
            }
            Self::FailedFormula => "if the formula cannot be computed, nothing changes; KEDA takes it as inactive",
            Self::KedaStays => {
                "metrics of the external.metrics API still come from KEDA, for the paused ScaledObject: KEDA and the \
                 ScaledObject must stay"
            }
            Self::FallbackOfKeda => {
                "for metrics that KEDA gives, its fallback comes first: after its number of failures, KEDA gives the target times \
                 the fallback's replicas as the value, which can also lower"
            }
        }
    }
}
