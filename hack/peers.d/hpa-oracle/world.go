package main

import (
	"context"
	"errors"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	autoscalingclient "k8s.io/client-go/kubernetes/typed/autoscaling/v2"
	"k8s.io/client-go/scale"
	"k8s.io/client-go/tools/cache"
	custom "k8s.io/metrics/pkg/apis/custom_metrics/v1beta2"
	external "k8s.io/metrics/pkg/apis/external_metrics/v1beta1"
	metrics "k8s.io/metrics/pkg/apis/metrics/v1beta1"
	resourceclient "k8s.io/metrics/pkg/client/clientset/versioned/typed/metrics/v1beta1"
	customclient "k8s.io/metrics/pkg/client/custom_metrics"
	externalclient "k8s.io/metrics/pkg/client/external_metrics"
)

const namespace = "shop"

var podLabels = map[string]string{"app": "web"}

var errAPI = errors.New("the API does not answer")

// world answers the requests of the controller for one step.
type world struct {
	step     *Step
	replicas int32
	hpa      *autoscalingv2.HorizontalPodAutoscaler
}

// The target.

type scales struct {
	scale.ScaleInterface
	world *world
}

func (w *world) Scales(string) scale.ScaleInterface { return scales{world: w} }

func (s scales) Get(context.Context, schema.GroupResource, string, metav1.GetOptions) (*autoscalingv1.Scale, error) {
	return &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"},
		Spec:       autoscalingv1.ScaleSpec{Replicas: s.world.replicas},
		Status: autoscalingv1.ScaleStatus{
			Replicas: s.world.step.StatusReplicas,
			Selector: labels.FormatLabels(podLabels),
		},
	}, nil
}

func (s scales) Update(
	_ context.Context, _ schema.GroupResource, scale *autoscalingv1.Scale, _ metav1.UpdateOptions,
) (*autoscalingv1.Scale, error) {
	s.world.replicas = scale.Spec.Replicas
	return scale, nil
}

// The autoscaler itself.

type autoscalers struct {
	autoscalingclient.HorizontalPodAutoscalerInterface
	world *world
}

func (w *world) HorizontalPodAutoscalers(string) autoscalingclient.HorizontalPodAutoscalerInterface {
	return autoscalers{world: w}
}

func (a autoscalers) UpdateStatus(
	_ context.Context, hpa *autoscalingv2.HorizontalPodAutoscaler, _ metav1.UpdateOptions,
) (*autoscalingv2.HorizontalPodAutoscaler, error) {
	a.world.hpa.Status = *hpa.Status.DeepCopy()
	return hpa, nil
}

// The metrics APIs.

type podMetrics struct {
	resourceclient.PodMetricsInterface
	world *world
}

func (w *world) PodMetricses(string) resourceclient.PodMetricsInterface { return podMetrics{world: w} }

func (p podMetrics) List(context.Context, metav1.ListOptions) (*metrics.PodMetricsList, error) {
	if p.world.step.UsageFails {
		return nil, errAPI
	}
	list := &metrics.PodMetricsList{}
	for _, usage := range p.world.step.Usage {
		item := metrics.PodMetrics{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: usage.Pod},
			Timestamp:  metav1.NewTime(at(usage.Time)),
			Window:     metav1.Duration{Duration: at(usage.Window).Sub(at(0))},
		}
		for name, used := range usage.Containers {
			item.Containers = append(item.Containers, metrics.ContainerMetrics{Name: name, Usage: used})
		}
		list.Items = append(list.Items, item)
	}
	return list, nil
}

type customMetrics struct{ world *world }

func (c customMetrics) RootScopedMetrics() customclient.MetricsInterface { return c }

func (c customMetrics) NamespacedMetrics(string) customclient.MetricsInterface { return c }

func (c customMetrics) GetForObject(
	_ schema.GroupKind, _ string, metric string, _ labels.Selector,
) (*custom.MetricValue, error) {
	answer, found := c.world.step.Answers[metric]
	if !found || len(answer.Values) != 1 {
		return nil, errAPI
	}
	return &custom.MetricValue{Value: answer.Values[0]}, nil
}

func (c customMetrics) GetForObjects(
	_ schema.GroupKind, _ labels.Selector, metric string, _ labels.Selector,
) (*custom.MetricValueList, error) {
	answer, found := c.world.step.Answers[metric]
	if !found {
		return nil, errAPI
	}
	list := &custom.MetricValueList{}
	for _, sample := range answer.Samples {
		list.Items = append(list.Items, custom.MetricValue{
			DescribedObject: v1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: sample.Pod},
			Value:           sample.Value,
		})
	}
	return list, nil
}

type externalMetrics struct{ world *world }

func (e externalMetrics) NamespacedMetrics(string) externalclient.MetricsInterface { return e }

func (e externalMetrics) List(metric string, _ labels.Selector) (*external.ExternalMetricValueList, error) {
	answer, found := e.world.step.Answers[metric]
	if !found {
		return nil, errAPI
	}
	list := &external.ExternalMetricValueList{}
	for _, value := range answer.Values {
		list.Items = append(list.Items, external.ExternalMetricValue{MetricName: metric, Value: value})
	}
	return list, nil
}

// podIndex returns the pods of a step as the cache of the controller has them.
func podIndex(step *Step) cache.Indexer {
	index := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	for i := range step.Pods {
		// Adding to an index of this kind cannot fail.
		_ = index.Add(pod(&step.Pods[i]))
	}
	return index
}

func pod(from *Pod) *v1.Pod {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: from.Name, Labels: podLabels},
		Status:     v1.PodStatus{Phase: from.Phase},
	}
	if from.Deleting {
		now := metav1.NewTime(at(0))
		pod.DeletionTimestamp = &now
	}
	if from.Start != nil {
		start := metav1.NewTime(at(*from.Start))
		pod.Status.StartTime = &start
	}
	if from.Ready != nil {
		pod.Status.Conditions = []v1.PodCondition{{
			Type: v1.PodReady, Status: from.Ready.Status, LastTransitionTime: metav1.NewTime(at(from.Ready.Since)),
		}}
	}
	if from.Requests != nil {
		pod.Spec.Resources = &v1.ResourceRequirements{Requests: from.Requests}
	}
	always := v1.ContainerRestartPolicyAlways
	for _, container := range from.Containers {
		made := v1.Container{Name: container.Name, Resources: v1.ResourceRequirements{Requests: container.Requests}}
		if container.Sidecar {
			made.RestartPolicy = &always
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, made)
		} else {
			pod.Spec.Containers = append(pod.Spec.Containers, made)
		}
	}
	return pod
}
