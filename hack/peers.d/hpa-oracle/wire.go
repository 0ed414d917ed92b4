package main

import (
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Situation is one line of the input. Times are milliseconds since 1970.
type Situation struct {
	// Continues says that the line has only further steps of the situation before it.
	Continues bool `json:"continues"`

	Min      *int32                                         `json:"min"`
	Max      int32                                          `json:"max"`
	Behavior *autoscalingv2.HorizontalPodAutoscalerBehavior `json:"behavior"`
	Metrics  []autoscalingv2.MetricSpec                     `json:"metrics"`
	// ScaledToZero says whether the autoscaler had scaled to zero before the first step.
	ScaledToZero bool   `json:"scaledToZero"`
	Steps        []Step `json:"steps"`
}

// Step is what one pass of the controller finds.
type Step struct {
	Time int64 `json:"time"`
	// Replicas is spec.replicas; the result of the previous step if it is not set.
	Replicas       *int32 `json:"replicas"`
	StatusReplicas int32  `json:"statusReplicas"`
	Pods           []Pod  `json:"pods"`
	// Usage is the answer of metrics.k8s.io; it answers with an error if UsageFails.
	Usage      []Usage `json:"usage"`
	UsageFails bool    `json:"usageFails"`
	// Answers of the other metrics APIs, by the name of the metric; without one, the API answers with an error.
	Answers map[string]Answer `json:"answers"`
}

type Pod struct {
	Name     string      `json:"name"`
	Phase    v1.PodPhase `json:"phase"`
	Deleting bool        `json:"deleting"`
	Start    *int64      `json:"start"`
	// Ready is the condition, if the pod has one.
	Ready      *Ready      `json:"ready"`
	Containers []Container `json:"containers"`
	// Requests of the pod itself.
	Requests v1.ResourceList `json:"requests"`
}

type Ready struct {
	Status v1.ConditionStatus `json:"status"`
	Since  int64              `json:"since"`
}

type Container struct {
	Name     string          `json:"name"`
	Requests v1.ResourceList `json:"requests"`
	Sidecar  bool            `json:"sidecar"`
}

type Usage struct {
	Pod        string                     `json:"pod"`
	Time       int64                      `json:"time"`
	Window     int64                      `json:"window"`
	Containers map[string]v1.ResourceList `json:"containers"`
}

// Answer has samples of pods, or values of an object or of the external API.
type Answer struct {
	Samples []Sample            `json:"samples"`
	Values  []resource.Quantity `json:"values"`
}

type Sample struct {
	Pod   string            `json:"pod"`
	Value resource.Quantity `json:"value"`
}

// Answers is one line of the output.
type Answers struct {
	Steps []Result `json:"steps"`
}

type Result struct {
	// Desired is spec.replicas after the pass.
	Desired int32 `json:"desired"`
	// Proposals of the metrics, in their order; null if the metric is invalid.
	Proposals []*int32 `json:"proposals"`
	// Conditions are status and reason by type, such as True/ValidMetricFound.
	Conditions map[string]string `json:"conditions"`
	Error      string            `json:"error,omitempty"`
}

func at(milliseconds int64) time.Time { return time.UnixMilli(milliseconds).UTC() }
