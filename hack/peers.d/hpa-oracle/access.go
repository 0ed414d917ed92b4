// Package podautoscaler is the controller of HorizontalPodAutoscaler, copied from the pinned module of Kubernetes with
// its clock replaced. This file is added to it: it reaches what the package does not export.
package podautoscaler

import (
	"context"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	autoscalingclient "k8s.io/client-go/kubernetes/typed/autoscaling/v2"
	corelisters "k8s.io/client-go/listers/core/v1"
	scaleclient "k8s.io/client-go/scale"
	"k8s.io/client-go/tools/record"
	metricsclient "k8s.io/kubernetes/pkg/controller/podautoscaler/metrics"
	"k8s.io/kubernetes/pkg/controller/podautoscaler/monitor"
	consistencyutil "k8s.io/kubernetes/pkg/controller/util/consistency"
	"k8s.io/kubernetes/pkg/controller/util/selectors"
)

// Flags of kube-controller-manager, with their defaults.
const (
	downscaleStabilization  = 5 * time.Minute
	tolerance               = 0.1
	cpuInitializationPeriod = 5 * time.Minute
	initialReadinessDelay   = 30 * time.Second
)

// oracleClock is the time that the package sees instead of time.Now().
var oracleClock time.Time

func oracleNow() time.Time { return oracleClock }

// Oracle is a controller without queues, watches and workers.
type Oracle struct {
	controller *HorizontalController
	key        string
}

// NewOracle returns the controller for one autoscaler. It forgets nothing until it is dropped.
func NewOracle(
	hpa *autoscalingv2.HorizontalPodAutoscaler,
	scales scaleclient.ScalesGetter,
	autoscalers autoscalingclient.HorizontalPodAutoscalersGetter,
	mapper meta.RESTMapper,
	metrics metricsclient.MetricsClient,
	pods corelisters.PodLister,
) *Oracle {
	tracker := newHPASelectorStore()
	tracker.PutIfAbsent(hpa.Namespace, selectors.Key{Namespace: hpa.Namespace, Name: hpa.Name}, labels.Nothing())
	return &Oracle{
		key: hpa.Namespace + "/" + hpa.Name,
		controller: &HorizontalController{
			eventRecorder:                &record.FakeRecorder{},
			scaleNamespacer:              scales,
			hpaNamespacer:                autoscalers,
			mapper:                       mapper,
			tolerance:                    tolerance,
			downscaleStabilisationWindow: downscaleStabilization,
			monitor:                      monitor.New(),
			podLister:                    pods,
			replicaCalc:                  NewReplicaCalculator(metrics, pods, cpuInitializationPeriod, initialReadinessDelay),
			recommendations:              map[string][]timestampedRecommendation{},
			scaleUpEvents:                map[string][]timestampedScaleEvent{},
			scaleDownEvents:              map[string][]timestampedScaleEvent{},
			selectorTracker:              tracker,
			consistencyStore:             consistencyutil.NewNoopConsistencyStore(),
		},
	}
}

// SetTime sets the time for all oracles.
func SetTime(now time.Time) { oracleClock = now }

// Proposal computes the number of replicas that one metric asks for, without any limit.
func (o *Oracle) Proposal(
	ctx context.Context,
	hpa *autoscalingv2.HorizontalPodAutoscaler,
	metric autoscalingv2.MetricSpec,
	specReplicas, statusReplicas int32,
	selector labels.Selector,
) (int32, error) {
	var status autoscalingv2.MetricStatus
	replicas, _, _, _, err := o.controller.computeReplicasForMetric(
		ctx, hpa.DeepCopy(), metric, specReplicas, statusReplicas, selector, &status)
	return replicas, err
}

// Reconcile is one pass of the controller.
func (o *Oracle) Reconcile(ctx context.Context, hpa *autoscalingv2.HorizontalPodAutoscaler) error {
	return o.controller.reconcileAutoscaler(ctx, hpa, o.key)
}
