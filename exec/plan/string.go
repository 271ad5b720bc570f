package plan

func (p *Plan) stepText(i int) string { return specs[p.ops[i].kind].name }
