// hpa-oracle runs the controller of HorizontalPodAutoscaler on situations. It reads one situation for each line of its
// standard input, or further steps of it, and answers each line at once by one with the results of the steps.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"
	defaults "k8s.io/kubernetes/pkg/apis/autoscaling/v2"
	metricsclient "k8s.io/kubernetes/pkg/controller/podautoscaler/metrics"

	"ganglion.dev/hack/plane/kubernetes/podautoscaler"
)

// maxLine is the maximum length of a situation, in bytes.
const maxLine = 64 << 20

func main() {
	// The controller logs each change.
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "hpa-oracle:", err)
		os.Exit(1)
	}
}

func run() error {
	input := bufio.NewScanner(os.Stdin)
	input.Buffer(nil, maxLine)
	output := bufio.NewWriter(os.Stdout)
	encoder := json.NewEncoder(output)
	var current *oracle
	for line := 1; input.Scan(); line++ {
		var situation Situation
		if err := json.Unmarshal(input.Bytes(), &situation); err != nil {
			return fmt.Errorf("line %d: %w", line, err)
		}
		if !situation.Continues {
			current = newOracle(&situation)
		}
		if current == nil {
			return fmt.Errorf("line %d: there is no situation to continue", line)
		}
		if err := encoder.Encode(current.results(situation.Steps)); err != nil {
			return err
		}
		if err := output.Flush(); err != nil {
			return err
		}
	}
	return input.Err()
}

func autoscaler(situation *Situation) *autoscalingv2.HorizontalPodAutoscaler {
	hpa := &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"},
			MinReplicas:    situation.Min,
			MaxReplicas:    situation.Max,
			Metrics:        situation.Metrics,
			Behavior:       situation.Behavior,
		},
	}
	// The API server stores defaults.
	defaults.SetDefaults_HorizontalPodAutoscaler(hpa)
	if situation.ScaledToZero {
		hpa.Status.Conditions = []autoscalingv2.HorizontalPodAutoscalerCondition{
			{Type: autoscalingv2.ScaledToZero, Status: v1.ConditionTrue},
		}
	}
	return hpa
}

// oracle is the controller of one situation.
type oracle struct {
	world      *world
	pods       *podLister
	controller *podautoscaler.Oracle
}

// podLister is the cache of the current step.
type podLister struct{ corelisters.PodLister }

func newOracle(situation *Situation) *oracle {
	apps := schema.GroupVersion{Group: "apps", Version: "v1"}
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{apps})
	mapper.Add(apps.WithKind("Deployment"), meta.RESTScopeNamespace)
	world := &world{hpa: autoscaler(situation)}
	pods := &podLister{}
	metrics := metricsclient.NewRESTMetricsClient(world, customMetrics{world}, externalMetrics{world})
	controller := podautoscaler.NewOracle(world.hpa, world, world, mapper, metrics, pods)
	return &oracle{world: world, pods: pods, controller: controller}
}

func (o *oracle) results(steps []Step) Answers {
	answers := Answers{Steps: make([]Result, 0, len(steps))}
	for i := range steps {
		answers.Steps = append(answers.Steps, o.result(&steps[i]))
	}
	return answers
}

func (o *oracle) result(step *Step) Result {
	ctx := context.Background()
	selector := labels.SelectorFromSet(podLabels)
	hpa := o.world.hpa
	podautoscaler.SetTime(at(step.Time))
	o.world.step = step
	o.pods.PodLister = corelisters.NewPodLister(podIndex(step))
	if step.Replicas != nil {
		o.world.replicas = *step.Replicas
	}
	result := Result{Conditions: map[string]string{}}
	for _, metric := range hpa.Spec.Metrics {
		proposal, err := o.controller.Proposal(ctx, hpa, metric, o.world.replicas, step.StatusReplicas, selector)
		if err != nil {
			result.Proposals = append(result.Proposals, nil)
		} else {
			result.Proposals = append(result.Proposals, &proposal)
		}
	}
	if err := o.controller.Reconcile(ctx, hpa); err != nil {
		result.Error = err.Error()
	}
	result.Desired = o.world.replicas
	for _, condition := range hpa.Status.Conditions {
		result.Conditions[string(condition.Type)] = string(condition.Status) + "/" + condition.Reason
	}
	return result
}
