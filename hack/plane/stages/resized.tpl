(([.spec.containers[] | {name, requests: (.resources.requests // {}), limits: (.resources.limits // {})}] | sort_by(.name))
!= ([.status.containerStatuses[]? | {name, requests: (.resources.requests // {}), limits: (.resources.limits // {})}] | sort_by(.name)))
or ([(.spec.resources.requests // {}), (.spec.resources.limits // {})]
!= [(.status.resources.requests // {}), (.status.resources.limits // {})])
