import type { ClientContext } from '@deepseek-ai/dsh-client-runtime/client'
import type {} from '@deepseek-ai/dsh-client-locale/client'
import type {} from '@deepseek-ai/dsh-client-ui-settings/client'
import { createElement } from 'react'

export const inject = ['slots', 'locale']

export const apply = (ctx: ClientContext) => {
  ctx.slots.inject('settings.section', () =>
    ctx.slots.register(
      { name: 'settings.section', id: 'dsh-gen-limit', order: 45, label: () => 'Generation limits' },
      () => createElement('p', null, 'Generation limits'),
    ),
  )
}
