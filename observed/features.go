package observed

// RuntimeFeatures are what a runtime says it can do beyond what every CRI v1
// runtime can. The zero value is a runtime that says nothing, as containerd 1.6.
type RuntimeFeatures struct {
	// SupplementalGroupsPolicy: it knows the policy Strict (KEP-3619).
	SupplementalGroupsPolicy bool
	// UserNamespacesHostNetwork: a pod may have a user namespace on the host's network.
	UserNamespacesHostNetwork bool
	// Handlers is by handler name; the default one has the empty name.
	Handlers map[string]HandlerFeatures
}

// HandlerFeatures are what one runtime handler can do.
type HandlerFeatures struct {
	RecursiveReadOnlyMounts bool // KEP-3857
	UserNamespaces          bool // KEP-127, with idmapped mounts
}

// Handler returns the features of a handler: none for one that was not reported.
func (f RuntimeFeatures) Handler(name string) HandlerFeatures { return f.Handlers[name] }
